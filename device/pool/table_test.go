package pool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

const gib = 1 << 30

// npus returns chips of a model, named as cards names them.
func npus(model string, bytes ...int64) []device.Device {
	list := cards(bytes...)
	for i := range list {
		list[i].Model = model
	}
	return list
}

// table910B4 is the vNPU templates of a chip of 32 GiB, table910B4x1 those of the one of 64 GiB
// whose name begins alike.
var (
	table910B4 = Table{"910B4", 32 * gib, []Template{
		{"vir10_3c_16g", 500, 16 * gib}, {"vir05_1c_8g", 250, 8 * gib},
	}}
	table910B4x1 = Table{"910B4-1", 64 * gib, []Template{
		{"vir05_1c_16g", 250, 16 * gib}, {"vir10_3c_32g", 500, 32 * gib},
	}}
)

// TestCase08TemplatesOfTheDevice: the templates are those of the very model, what is given out is
// what is cut off, and capacity is that of the device.
func TestCase08TemplatesOfTheDevice(t *testing.T) {
	devices := append(npus("910B4", 32*gib), npus("910B4-1", 0, 64*gib-gib)[1])
	p := newPool(t, Config{Devices: devices, Tables: []Table{table910B4, table910B4x1}})
	small := reserve(t, p, Request{Bytes: 16 * gib, Among: []string{"a"}})
	require.Equal(t, []Part{{Device: "a", Template: "vir10_3c_16g", Taken: Amounts{500, 16 * gib}}}, small.Parts)
	large := reserve(t, p, Request{Bytes: 16 * gib, Among: []string{"b"}})
	require.Equal(t, []Part{{Device: "b", Template: "vir05_1c_16g", Taken: Amounts{250, 16 * gib}}}, large.Parts, "not that of its cousin")
	next := reserve(t, p, Request{Milli: 260, Bytes: gib, Among: []string{"b"}})
	require.Equal(t, "vir10_3c_32g", next.Parts[0].Template, "the smallest with room for both")
	require.Equal(t, []Status{
		{Device: "a", Usable: true, Total: Amounts{1000, 32 * gib}, Available: Amounts{500, 16 * gib}, Shares: 1},
		{Device: "b", Usable: true, Total: Amounts{1000, 63 * gib}, Available: Amounts{250, 15 * gib}, Shares: 2},
	}, p.Status(), "what is cut off, not what was asked for")
	_, _, err := p.Reserve(Request{Milli: 1, Bytes: gib, Among: []string{"b"}})
	require.EqualError(t, err, "pool: refused for now: b: memory: want 17179869184, have 16106127360", "the driver keeps a GiB")
	_, _, err = p.Reserve(Request{Milli: 300, Bytes: 17 * gib, Among: []string{"a"}})
	require.ErrorContains(t, err, "a: computing time: want 1000, have 500", "only the whole chip has as much")
	for _, r := range []Reservation{small, large, next} {
		_, err := p.Release(r.ID)
		require.NoError(t, err)
	}
	whole := reserve(t, p, Request{Milli: 300, Bytes: 17 * gib, Among: []string{"a"}})
	require.Equal(t, []Part{{Device: "a", Taken: Amounts{1000, 32 * gib}}}, whole.Parts)
	_, _, err = p.Reserve(Request{Bytes: 64 * gib})
	require.ErrorContains(t, err, "refused for good")
}

// A table that is not of the device is refused, with both amounts, at the start and later.
func TestCase08TableOfAnotherDevice(t *testing.T) {
	inherited := table910B4
	inherited.Model = "910B4-1"
	_, err := New(Config{Devices: npus("910B4-1", 64*gib), Tables: []Table{inherited}})
	require.ErrorContains(t, err, `device "a": MemoryBytes 68719476736: the table of "910B4-1" is for 34359738368`)
	_, err = New(Config{Devices: npus("910B4", 16*gib), Tables: []Table{table910B4}})
	require.ErrorContains(t, err, `device "a": MemoryBytes 17179869184`)
	p := newPool(t, Config{Devices: npus("910B4", 32*gib), Tables: []Table{table910B4}, MemoryFactor: 2})
	_, _, err = p.Update(npus("910B4", 32*gib, 64*gib))
	require.ErrorContains(t, err, `device "b"`)
	require.Len(t, p.Status(), 1, "nothing has changed")
	require.EqualValues(t, 32*gib, p.Status()[0].Total.Bytes, "hardware gives no more than it has")
	_, _, err = p.Update([]device.Device{{ID: "a"}}) // a source that knows less
	require.NoError(t, err)
	require.Equal(t, "vir05_1c_8g", reserve(t, p, Request{Milli: 1}).Parts[0].Template)

	_, err = New(Config{Tables: []Table{
		{"", 0, nil},
		{"x", gib, []Template{{"", 0, -1}, {"a", 1001, gib + 1}, {"a", 1, 1}}},
		{"x", gib, []Template{{"b", 1, 1}}},
	}})
	for _, want := range []string{
		"Model is empty", "MemoryBytes 0: want 1 to", "0 templates: want 1 to 64", `Templates[0] ""`, "Milli 0: want 1 to 1000",
		"Bytes -1", "a: Milli 1001", "a: Bytes 1073741825: want 0 to the 1073741824", `Templates[2] "a"`, `table of "x": there are two`,
	} {
		require.ErrorContains(t, err, want)
	}
}
