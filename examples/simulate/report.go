package main

import (
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/sim"
)

// Sizes of the plots, in pixels.
const (
	plotWidth, plotHeight = 900, 180
	cell                  = 5
	nodesPerRow           = 32
)

// curve is one line of a plot.
type curve struct {
	Name, Color, Points string
}

// plot is one over time.
type plot struct {
	Title  string
	Curves []curve
}

// square is one device of the map.
type square struct {
	X, Y  int
	Color string
}

// page is what the report shows.
type page struct {
	Names         []string
	Rows          [][]string
	Plots         []plot
	Maps          []deviceMap
	Width, Height int
	Cell          int
	Assumptions   string
}

// deviceMap is the devices of a cluster, node by node, at the end.
type deviceMap struct {
	Name          string
	Squares       []square
	Width, Height int
}

// writeReport writes the report as one HTML file that needs nothing else.
func writeReport(w io.Writer, ways []way) error {
	p := page{Width: plotWidth, Height: plotHeight, Cell: cell - 1, Assumptions: assumptions}
	for i, first := range rows(ways[0].result) {
		row := []string{first[0]}
		for _, x := range ways {
			row = append(row, rows(x.result)[i][1])
		}
		p.Rows = append(p.Rows, row)
	}
	for _, x := range ways {
		p.Names = append(p.Names, x.name)
		p.Maps = append(p.Maps, mapOf(x.name, x.result.Nodes))
	}
	for _, s := range []struct {
		title string
		value func(sim.Point) float64
	}{
		{"devices in use, %", func(p sim.Point) float64 { return 100 * p.Allocated }},
		{"fragmentation, %", func(p sim.Point) float64 { return 100 * p.Fragmented }},
		{"parameter servers", func(p sim.Point) float64 { return float64(p.Servers) }},
		{"jobs that wait", func(p sim.Point) float64 { return float64(p.Waiting) }},
	} {
		p.Plots = append(p.Plots, plotOf(s.title, ways, s.value))
	}
	return report.Execute(w, p)
}

// plotOf draws a line for each way, from zero to the highest value.
func plotOf(title string, ways []way, value func(sim.Point) float64) plot {
	colors := []string{"#999999", "#1f77b4", "#ff7f0e", "#2ca02c"}
	high := 0.0
	for _, x := range ways {
		for _, p := range x.result.Points {
			high = max(high, value(p))
		}
	}
	pl := plot{Title: fmt.Sprintf("%s (0 to %.3g)", title, high)}
	for i, x := range ways {
		var points strings.Builder
		for k, p := range x.result.Points {
			fmt.Fprintf(&points, "%.1f,%.1f ", float64(k)*plotWidth/float64(max(1, len(x.result.Points)-1)), plotHeight*(1-value(p)/max(high, 1e-9)))
		}
		pl.Curves = append(pl.Curves, curve{x.name, colors[i%len(colors)], points.String()})
	}
	return pl
}

// mapOf draws the devices, the darker the more of one is in use, each vendor's models in order
// of their names.
func mapOf(name string, nodes map[string]sched.Usage) deviceMap {
	m := deviceMap{Name: name}
	for i, node := range slices.Sorted(maps.Keys(nodes)) {
		x, y := i%nodesPerRow*(8*cell+4), i/nodesPerRow*(cell+1)
		for d, used := range nodes[node].Devices {
			light := 235 - 190*int(used)/int(sched.Whole)
			m.Squares = append(m.Squares, square{x + d*cell, y, fmt.Sprintf("rgb(%d,%d,235)", light, light)})
		}
		m.Width, m.Height = nodesPerRow*(8*cell+4), y+cell
	}
	return m
}

var report = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A simulated day</title>
<style>
body { font: 14px sans-serif; margin: 2em; max-width: 1500px }
td, th { padding: 2px 12px; text-align: right } td:first-child { text-align: left }
svg { background: #fafafa; display: block; margin-bottom: 1em }
</style></head><body>
<h1>A simulated day</h1>
<table><tr><th></th>{{range .Names}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
<pre>{{.Assumptions}}</pre>
{{range .Plots}}<h2>{{.Title}}</h2>
<p>{{range .Curves}}<span style="color:{{.Color}}">■ {{.Name}}</span> {{end}}</p>
<svg width="{{$.Width}}" height="{{$.Height}}">{{range .Curves}}<polyline fill="none" stroke="{{.Color}}" points="{{.Points}}"/>{{end}}</svg>
{{end}}
{{range .Maps}}<h2>Devices at the end: {{.Name}}</h2>
<svg width="{{.Width}}" height="{{.Height}}">{{range .Squares}}<rect x="{{.X}}" y="{{.Y}}" width="{{$.Cell}}" height="{{$.Cell}}" fill="{{.Color}}"/>{{end}}</svg>
{{end}}</body></html>
`))
