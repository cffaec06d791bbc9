package smi

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

// Four A100 of which 0 and 1 are bridged, as in testdata/nvidia-a100.txt, whose third has no row: it
// came off the bus before the matrix was printed.
const a100Matrix = "\tGPU0\tGPU1\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\n" +
	"GPU0\t X \tNV12\tNODE\tPIX\t0-31,64-95\t0\n" +
	"GPU1\tNV12\t X \tSYS\tPHB\t0-31,64-95\t0\n" +
	"GPU3\tNODE\tSYS\t X \tSYS\t32-63\t1\n" +
	"mlx5_0\tPIX\tPHB\tSYS\t X \t\t\n"

// tool is a program that lists its devices and its links, and counts how often it is asked.
type tool struct {
	devices, links  string
	err             error
	hangs           bool // when it is asked for its links
	asked, askedFor int
}

func (p *tool) run(ctx context.Context, _ int, _ string, args ...string) (Output, error) {
	if slices.Contains(args, "topo") {
		p.askedFor++
		if p.hangs {
			<-ctx.Done()
			return Output{}, ctx.Err()
		}
		return Output{Stdout: p.links}, p.err
	}
	p.asked++
	return Output{Stdout: p.devices}, nil
}

func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".txt")
	require.NoError(t, err)
	return string(text)
}

// linked returns the links of each device by the indexes of both.
func linked(list []device.Device) map[int]map[int]device.Link {
	index := make(map[string]int)
	for _, d := range list {
		index[d.ID] = d.Index
	}
	all := make(map[int]map[int]device.Link)
	for _, d := range list {
		for _, l := range d.Links {
			if all[d.Index] == nil {
				all[d.Index] = make(map[int]device.Link)
			}
			peer := index[l.Peer]
			l.Peer = ""
			all[d.Index][peer] = l
		}
	}
	return all
}

func TestLinksOfTheTools(t *testing.T) {
	node, system := device.Link{Kind: topology.KindSocket}, device.Link{Kind: topology.KindNode}
	bridge, hccs := device.Link{Kind: topology.KindNVLink, Lanes: 12}, device.Link{Kind: topology.KindHCCS, Lanes: 1}
	mt := device.Link{Kind: topology.KindMTLink, Lanes: 2}
	for _, c := range []struct {
		make           func(Config) (*Tool, error)
		devices, links string
		want           map[int]map[int]device.Link
	}{
		{NVIDIA, "nvidia-a100", a100Matrix, map[int]map[int]device.Link{
			0: {1: bridge, 3: node}, 1: {0: bridge, 3: system}, 3: {0: node, 1: system},
		}},
		{Ascend, "ascend-a3", "      NPU0  NPU1  CPU Affinity\nNPU0  X     HCCS  144-167\nNPU1  HCCS  X     144-167\n", map[int]map[int]device.Link{
			0: {1: hccs}, 1: {0: hccs},
		}},
		{MooreThreads, "moorethreads-s5000", "mthreads-gmi:2.4.1\n     GPU0 GPU1 CPU Affinity\nGPU0 X    MT2  0-23\nGPU1 MT2  X    0-23\n", map[int]map[int]device.Link{
			0: {1: mt}, 1: {0: mt},
		}},
	} {
		p := &tool{devices: golden(t, c.devices), links: c.links}
		made, err := c.make(Config{Run: p.run})
		require.NoError(t, err)
		for range 3 {
			list, err := made.Devices(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, linked(list), c.devices)
		}
		require.Equal(t, 3, p.asked)
		require.Equal(t, 1, p.askedFor, "the links of the same devices are those that they were")
	}
}

// A tool that cannot tell its links is asked again after a while, or when its devices
// change, and its devices are listed all the same.
func TestToolThatCannotTellItsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tool{devices: golden(t, "nvidia-a100"), links: "Invalid combination of input arguments.\n"}
		made, err := NVIDIA(Config{Run: p.run})
		require.NoError(t, err)
		ask := func(times int, links bool) {
			t.Helper()
			list, err := made.Devices(t.Context())
			require.NoError(t, err)
			require.Equal(t, links, len(linked(list)) > 0)
			require.Equal(t, times, p.askedFor)
		}
		ask(1, false)
		ask(1, false)
		time.Sleep(askAgain)
		p.err = errors.New("no program")
		ask(2, false)
		p.err, p.hangs = nil, true
		time.Sleep(askAgain)
		begin := time.Now()
		ask(3, false)
		require.Less(t, time.Since(begin), 5*time.Second, "the list comes in time")
		p.hangs, p.links = false, a100Matrix
		lines := strings.SplitAfter(p.devices, "\n")
		p.devices = strings.Join(lines[:3], "")
		ask(4, true)
		p.devices = strings.Join(lines[:2], "")
		ask(4, false) // one alone has no links
	})
}
