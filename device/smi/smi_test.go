package smi

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

var update = flag.Bool("update", false, "write what the parsers return into testdata/*.want")

// parsers by the first word of the name of a golden text.
var parsers = map[string]func(string) ([]device.Device, error){
	"nvidia": ParseNVIDIA, "ascend": ParseAscend, "moorethreads": ParseMooreThreads,
}

// render writes each device as one block, unknown figures included.
func render(list []device.Device) string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%s: %s %d %q uuid=%q bus=%q\n", d.ID, d.Vendor, d.Index, d.Model, d.UUID, d.BusID)
		fmt.Fprintf(&b, "  memory %v used %v busy %v, %v C, %v W, %v %q\n",
			d.MemoryBytes, d.UsedBytes, d.Utilization, d.Celsius, d.Watts, d.Health, d.Fault)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.Len(t, files, 10)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			vendor, _, _ := strings.Cut(filepath.Base(file), "-")
			list, err := parsers[vendor](string(text))
			require.NoError(t, err)
			golden := strings.TrimSuffix(file, ".txt") + ".want"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(render(list)), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), render(list))
			crlf, err := parsers[vendor](strings.ReplaceAll(string(text), "\n", "\r\n"))
			require.NoError(t, err)
			require.Equal(t, list, crlf)
		})
	}
}

func TestFaultsNameLineAndField(t *testing.T) {
	golden := func(name string) string {
		text, err := os.ReadFile("testdata/" + name + ".txt")
		require.NoError(t, err)
		return string(text)
	}
	cases := []struct {
		name, from, to string // a golden text and what is changed in it
		want           string
	}{
		{"nvidia-a100", "index, uuid", "ordinal, uuid", `nvidia-smi: line 1: header: "ordinal, uuid`},
		{"nvidia-a100", "97, 66", "97", `nvidia-smi: line 3: row: `},
		{"nvidia-a100", "97, 66", "97, warm", `nvidia-smi: line 3: temperature.gpu: "warm": want a number of C`},
		{"nvidia-a100", "81920, 512", "80 GiB, 512", `nvidia-smi: line 2: memory.total: "80 GiB": want a number of MiB`},
		{"nvidia-a100", "\n1, ", "\n-1, ", `nvidia-smi: line 3: index: "-1": want a number from 0`},
		{"ascend-a2", "Health        |", "State         |", `npu-smi info: line 4: header: `},
		{"ascend-a2", "AICore(%)", "Cores(%) ", `npu-smi info: line 5: header: `},
		{"ascend-a2", "53984/ 65536", "53984        ", `npu-smi info: line 8: HBM-Usage(MB): `},
		{"ascend-a2", "53984/ 65536", "many / 65536 ", `npu-smi info: line 8: HBM-Usage(MB): "many"`},
		{"ascend-a2", "| 93.6 ", "| 9x.6 ", `npu-smi info: line 7: Power(W): "9x.6"`},
		{"ascend-a2", "| 93.6        40                0    / 0 ", "| 93.6                                     ", `npu-smi info: line 7: Power(W): "93.6": want power and temperature`},
		{"ascend-a2", "| 1     910B3", "| x     910B3", `npu-smi info: line 10: NPU: "x"`},
		{"ascend-a2", "| 0                         | 0000:C2", "|                           | 0000:C2", `npu-smi info: line 11: Chip: "": want Chip`},
		{"ascend-a2", "| OK            |", "  OK            |", `npu-smi info: line 7: row: `},
		{"ascend-a3", "| 1     5   ", "| 1     e   ", `npu-smi info: line 11: Phy-ID: "e"`},
		{"moorethreads-s80", "%GPU", "Load", `mthreads-gmi: line 5: header: `},
		{"moorethreads-s80", "0%2MiB(16384MiB)", "0%2MiB/16384MiB", `mthreads-gmi: line 9: Mem: "2MiB/16384MiB": want used(total)`},
		{"moorethreads-s80", "0%2MiB(16384MiB)", "0%2GiB(16384MiB)", `mthreads-gmi: line 9: Mem: "2GiB": want a number of MiB`},
		{"moorethreads-s80", "|49C", "|hot", `mthreads-gmi: line 10: Temp: "hot": want a number of C`},
		{"moorethreads-s80", "     Physical       |4x(16x)             |49C   YES            \n", "", `mthreads-gmi: line 10: Temp: `},
	}
	for _, c := range cases {
		t.Run(c.name+" "+c.to, func(t *testing.T) {
			text := golden(c.name)
			require.Contains(t, text, c.from)
			vendor, _, _ := strings.Cut(c.name, "-")
			list, err := parsers[vendor](strings.Replace(text, c.from, c.to, 1))
			require.ErrorContains(t, err, c.want)
			var fault *device.TextError
			require.ErrorAs(t, err, &fault)
			require.Empty(t, list)
		})
	}
	for vendor, parse := range parsers {
		_, err := parse("tool: a version that is to come\nwith {\"other\": \"text\"}\n")
		require.ErrorContains(t, err, "header", vendor)
		_, err = parse("")
		require.ErrorContains(t, err, "header", vendor)
	}
	for _, cut := range []string{"ascend-a2", "moorethreads-s80"} {
		lines := strings.SplitAfter(golden(cut), "\n")
		vendor, _, _ := strings.Cut(cut, "-")
		upper := 7
		if vendor == "moorethreads" {
			upper = 9
		}
		_, err := parsers[vendor](strings.Join(lines[:upper], ""))
		require.ErrorContains(t, err, "want a second row", cut)
	}
}

// fuzz checks that a parser ends with sane devices or with a TextError that has a line.
func fuzz(f *testing.F, vendor string) {
	files, err := filepath.Glob("testdata/" + vendor + "-*.txt")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(text))
		f.Add(string(text[:len(text)/2]))
	}
	f.Add("||\n|||\n| |\nindex\n\xff")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parsers[vendor](text)
		if err != nil {
			var fault *device.TextError
			require.True(t, errors.As(err, &fault))
			require.NotEmpty(t, fault.Field)
			require.Less(t, len(err.Error()), 1000+len(fault.Want))
			require.Empty(t, list)
			return
		}
		for _, d := range list {
			require.NotEmpty(t, d.ID)
			require.GreaterOrEqual(t, d.Utilization.Value, 0.0)
			require.LessOrEqual(t, d.Utilization.Value, 1.0)
			require.GreaterOrEqual(t, d.MemoryBytes.Value, int64(0))
			require.GreaterOrEqual(t, d.UsedBytes.Value, int64(0))
		}
	})
}

func FuzzNVIDIA(f *testing.F)       { fuzz(f, "nvidia") }
func FuzzAscend(f *testing.F)       { fuzz(f, "ascend") }
func FuzzMooreThreads(f *testing.F) { fuzz(f, "moorethreads") }
