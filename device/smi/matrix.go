package smi

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

// askAgain is how long a tool that could not tell the links is not asked again.
const askAgain = time.Minute

// matrix is what a tool has said about links. They do not change while the devices are the
// same, and to ask takes as long as to list them.
type matrix struct {
	ids   []string        // of the devices that it is about
	graph *topology.Graph // nil if the tool could not tell
	asked time.Time
}

// link gives devices the links that the tool tells. Those of a tool that does not know the
// question, or answers in another way, stay unknown.
func (t *Tool) link(ctx context.Context, list []device.Device) {
	var ids []string
	for _, d := range list {
		ids = append(ids, fmt.Sprint(d.ID, " ", d.Index, " ", d.Health == device.Gone))
	}
	if len(ids) < 2 {
		return
	}
	if m := t.matrix; !slices.Equal(m.ids, ids) || m.graph == nil && time.Since(m.asked) >= askAgain {
		t.matrix = matrix{ids: ids, asked: time.Now()}
		if end, ok := ctx.Deadline(); ok { // who waits for the list gets it in time, whatever becomes of this
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
			defer cancel()
		}
		out, err := t.cfg.Run(ctx, t.cfg.MaxOutputBytes, t.cfg.Program, t.links...)
		if err == nil && out.ExitCode == 0 {
			t.matrix.graph, _ = topology.ParseMatrix(strings.NewReader(out.Stdout)) // nil on errors
		}
	}
	if t.matrix.graph != nil {
		Link(list, t.matrix.graph)
	}
}

// Link gives devices the links of a graph that topology.ParseMatrix read from the output of
// the same vendor's tool, which names the accelerators by their Index: GPU3, NPU3. Links that
// they have already are replaced; devices that the graph does not have keep theirs.
func Link(list []device.Device, g *topology.Graph) {
	names := make(map[int]int) // Index → device of the graph
	all := g.Devices()
	for _, i := range g.Accelerators() {
		if n, err := strconv.Atoi(strings.TrimLeft(all[i].Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")); err == nil {
			names[n] = i
		}
	}
	for i, d := range list {
		at, ok := names[d.Index]
		if !ok || d.Health == device.Gone {
			continue
		}
		list[i].Links = nil
		for j, other := range list {
			peer, ok := names[other.Index]
			if !ok || other.Health == device.Gone || i == j {
				continue
			}
			if l := g.Link(at, peer); l.Kind != topology.KindUnknown {
				list[i].Links = append(list[i].Links, device.Link{Kind: l.Kind, Peer: other.ID, Lanes: l.Lanes})
			}
		}
	}
}
