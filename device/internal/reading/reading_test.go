package reading

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

func TestNumber(t *testing.T) {
	unknown := device.Figure[float64]{}
	cases := []struct {
		text, unit string
		want       device.Figure[float64]
		fault      bool
	}{
		{"81920 MiB", "MiB", device.Known(81920.0), false},
		{"81920MiB", "MiB", device.Known(81920.0), false},
		{" 93.6 ", "W", device.Known(93.6), false},
		{"48C", "C", device.Known(48.0), false},
		{"-5", "C", device.Known(-5.0), false},
		{"-", "W", unknown, false},
		{"NA", "W", unknown, false},
		{"[N/A]", "%", unknown, false},
		{"[GPU requires reset]", "%", unknown, false},
		{"ERR!", "W", unknown, false},
		{"", "W", unknown, false},
		{"12 GiB", "MiB", unknown, true},
		{"nan", "W", unknown, true},
		{"inf", "W", unknown, true},
		{"0x10", "W", unknown, true},
		{"1e3", "W", unknown, true},
		{"1.2.3", "W", unknown, true},
	}
	for _, c := range cases {
		got, err := Cell{Source: "tool", Line: 3, Field: "power", Text: c.text}.Number(c.unit)
		require.Equal(t, c.want, got, c.text)
		if c.fault {
			require.Equal(t, &device.TextError{Source: "tool", Line: 3, Field: "power", Text: c.text, Want: "a number of " + c.unit}, err)
		} else {
			require.NoError(t, err)
		}
	}
	_, err := Cell{Source: "tool", Field: "index", Text: "-1"}.Index()
	require.EqualError(t, err, `device: tool: index: "-1": want a number from 0 to 65535`)
}

func TestBounds(t *testing.T) {
	require.Equal(t, device.Known(0.07), Fraction(device.Known(7.0)))
	require.False(t, Fraction(device.Known(100.5)).Known)
	require.False(t, Fraction(device.Figure[float64]{Value: 5}).Known)
	require.Equal(t, device.Known(int64(1<<30)), Bytes(device.Known(1024.0), 1<<20))
	require.False(t, Bytes(device.Known(-1.0), 1<<20).Known)
	require.False(t, Bytes(device.Known(1e15), 1<<20).Known)
}

func TestBusID(t *testing.T) {
	for text, want := range map[string]string{
		"0000:C1:00.0": "0000:c1:00.0", "00000000:18:00.0": "0000:18:00.0", "00010000:18:00.1": "10000:18:00.1",
		"18:00.0": "0000:18:00.0", " 0000:c1:00.0 ": "0000:c1:00.0", "": "", "N/A": "", "0000:c1:00": "", "0000:g1:00.0": "",
		"0000:c1:00.0.0": "", "zz:c1:00.0": "",
	} {
		require.Equal(t, want, BusID(text), text)
	}
}
