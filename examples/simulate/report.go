package main

import (
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/sim"
)

// Sizes, in pixels.
const (
	plotWidth, plotHeight = 900, 180
	cell                  = 6              // of a device, with the gap beside it
	nodeWidth             = 4*cell + 4     // four devices beside each other
	nodeHeight            = 2*cell + 4     // in two rows
	mapWidth              = 36 * nodeWidth // nodes in a row
	labelHeight           = 22             // of a model
	maxGrid               = 5              // lines across a plot
	maxUpright            = 13             // lines for times
)

// curve is one line of a plot.
type curve struct {
	Name, Color, Points string
	Dash                string // of the last one, so that those beneath it are seen
}

// grid is a line across a plot, or up, and what it stands for.
type grid struct {
	At   float64
	Text string
}

// plot is one over time.
type plot struct {
	Title         string
	Curves        []curve
	Levels, Times []grid
}

// square is one device of the map.
type square struct {
	X, Y  int
	Color string
}

// label is the name of a model above its devices.
type label struct {
	Y    int
	Text string
}

// page is what the report shows.
type page struct {
	Names         []string
	Rows          [][]string
	Plots         []plot
	Maps          []deviceMap
	Width, Height int
	Cell          int
	Shades        []string
	Assumptions   string
}

// deviceMap is the devices of a cluster, node by node, at the end.
type deviceMap struct {
	Name          string
	Labels        []label
	Squares       []square
	Width, Height int
}

// writeReport writes the report as one HTML file that needs nothing else.
func writeReport(w io.Writer, ways []way) error {
	p := page{Width: plotWidth, Height: plotHeight, Cell: cell - 1, Assumptions: assumptions}
	for used := sched.Milli(0); used <= sched.Whole; used += sched.Whole / 4 {
		p.Shades = append(p.Shades, shade(used))
	}
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
		{"Devices in use, %", func(p sim.Point) float64 { return 100 * p.Allocated }},
		{"Fragmentation, %", func(p sim.Point) float64 { return 100 * p.Fragmented }},
		{"Parameter servers", func(p sim.Point) float64 { return float64(p.Servers) }},
		{"Jobs that wait", func(p sim.Point) float64 { return float64(p.Waiting) }},
	} {
		p.Plots = append(p.Plots, plotOf(s.title, ways, s.value))
	}
	return layout.Execute(w, p)
}

// plotOf draws a line for each way, from zero to a round number above the highest value.
func plotOf(title string, ways []way, value func(sim.Point) float64) plot {
	colors := []string{"#8a8a8a", "#1f77b4", "#e07b00", "#2ca02c"}
	high, last := 1.0, time.Minute
	for _, x := range ways {
		for _, p := range x.result.Points {
			high, last = max(high, value(p)), max(last, p.At)
		}
	}
	step := roundStep(high / maxGrid)
	top := step * math.Ceil(high/step)
	y := func(v float64) float64 { return plotHeight * (1 - v/top) }
	x := func(at time.Duration) float64 { return plotWidth * float64(at) / float64(last) }
	pl := plot{Title: title}
	for i := 0; float64(i)*step <= top*(1+1e-9); i++ {
		pl.Levels = append(pl.Levels, grid{y(float64(i) * step), fmt.Sprintf("%.4g", float64(i)*step)})
	}
	apart := max(time.Minute, time.Duration(roundStep(last.Hours()/(maxUpright-1))*float64(time.Hour)))
	for at := time.Duration(0); at <= last; at += apart {
		pl.Times = append(pl.Times, grid{x(at), fmt.Sprintf("%.4g h", at.Hours())})
	}
	for i, w := range ways {
		var points strings.Builder
		for _, p := range w.result.Points {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(p.At), y(value(p)))
		}
		c := curve{Name: w.name, Color: colors[i%len(colors)], Points: points.String()}
		if i == len(ways)-1 {
			c.Dash = "7 5"
		}
		pl.Curves = append(pl.Curves, c)
	}
	return pl
}

// roundStep is the next of 1, 2 and 5 times a power of ten.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= least*(1-1e-9) {
			return n * power
		}
	}
	return 10 * power
}

// mapOf draws the devices, the darker the more of one is in use: models in the order of their names,
// the nodes of each in that of theirs.
func mapOf(name string, nodes map[string]sched.Usage) deviceMap {
	byModel := make(map[string][]string)
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		byModel[nodes[node].Model] = append(byModel[nodes[node].Model], node)
	}
	m := deviceMap{Name: name, Width: mapWidth}
	for _, model := range slices.Sorted(maps.Keys(byModel)) {
		m.Labels = append(m.Labels, label{m.Height + labelHeight - 6, fmt.Sprintf("%s, %d nodes", model, len(byModel[model]))})
		m.Height += labelHeight
		perRow := mapWidth / nodeWidth
		for i, node := range byModel[model] {
			x, y := i%perRow*nodeWidth, m.Height+i/perRow*nodeHeight
			for d, used := range nodes[node].Devices {
				m.Squares = append(m.Squares, square{x + d%4*cell, y + d/4*cell, shade(used)})
			}
		}
		m.Height += (len(byModel[model]) + perRow - 1) / perRow * nodeHeight
	}
	return m
}

// shade is the color of a device of which so much is in use.
func shade(used sched.Milli) string {
	light := 228 - 190*int(used)/int(sched.Whole)
	return fmt.Sprintf("rgb(%d,%d,235)", light, light)
}

var layout = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A simulated day</title>
<style>
body { font: 14px sans-serif; margin: 2em; max-width: 1100px; color: #222 }
h2 { font-size: 16px; margin: 1.6em 0 0.3em }
table { border-collapse: collapse }
td, th { padding: 4px 12px; text-align: right; border-bottom: 1px solid #e4e4e4 } td:first-child { text-align: left }
pre { white-space: pre-wrap; color: #555 }
p { margin: 0.3em 0 } p span { margin-right: 1.2em }
svg { display: block; overflow: visible } svg text { font: 11px sans-serif; fill: #666 }
.plot { margin: 0.6em 0 2.4em 3em }
</style></head><body>
<h1>A simulated day</h1>
<table><tr><th></th>{{range .Names}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
<pre>{{.Assumptions}}</pre>
{{range .Plots}}<h2>{{.Title}}</h2>
<p>{{range .Curves}}<span><b style="color:{{.Color}}">&#9473;</b> {{.Name}}</span>{{end}}</p>
<svg class="plot" width="{{$.Width}}" height="{{$.Height}}">{{range .Levels}}<line x1="0" x2="{{$.Width}}" y1="{{.At}}" y2="{{.At}}" stroke="#e4e4e4"/><text x="-8" y="{{.At}}" dy="4" text-anchor="end">{{.Text}}</text>{{end}}
{{range .Times}}<line x1="{{.At}}" x2="{{.At}}" y1="0" y2="{{$.Height}}" stroke="#f0f0f0"/><text x="{{.At}}" y="{{$.Height}}" dy="16" text-anchor="middle">{{.Text}}</text>{{end}}
{{range .Curves}}<polyline fill="none" stroke-width="1.5" stroke="{{.Color}}" stroke-dasharray="{{.Dash}}" points="{{.Points}}"/>{{end}}</svg>
{{end}}
<h2>Devices at the end</h2>
<p>Each square is a device, each group a node. In use: {{range $i, $c := .Shades}}<span><b style="color:{{$c}}">&#9632;</b> {{if eq $i 0}}nothing{{else if eq $i 4}}all{{end}}</span>{{end}}</p>
{{range .Maps}}<h2>{{.Name}}</h2>
<svg width="{{.Width}}" height="{{.Height}}">{{range .Labels}}<text x="0" y="{{.Y}}">{{.Text}}</text>{{end}}{{range .Squares}}<rect x="{{.X}}" y="{{.Y}}" width="{{$.Cell}}" height="{{$.Cell}}" fill="{{.Color}}"/>{{end}}</svg>
{{end}}</body></html>
`))
