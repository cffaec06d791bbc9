package exporter

import (
	"cmp"
	"fmt"

	"github.com/elasticps/elasticps/device"
)

// maxDevices bounds the devices of a page.
const maxDevices = 4096

// values are the figures of one device by the name of the metric.
type values map[string]device.Figure[float64]

// gathered are the devices of a page in the order in which they appear, and their values.
type gathered struct {
	devices []device.Device
	values  []values
}

// gather sorts samples by the device that identify finds in them. A value for which real
// is false, or that is no number, is unknown.
func gather(list []sample, identify func(sample) (device.Device, error), real func(float64) bool) (gathered, error) {
	var g gathered
	at := make(map[string]int)
	for _, s := range list {
		d, err := identify(s)
		if err != nil {
			return gathered{}, err
		}
		i, ok := at[d.ID]
		if !ok {
			if len(at) == maxDevices {
				return gathered{}, s.Fault(fmt.Sprintf("at most %d devices", maxDevices))
			}
			i = len(g.devices)
			at[d.ID] = i
			g.devices, g.values = append(g.devices, d), append(g.values, make(values))
		}
		known := &g.devices[i]
		known.Model, known.UUID, known.BusID = cmp.Or(known.Model, d.Model), cmp.Or(known.UUID, d.UUID), cmp.Or(known.BusID, d.BusID)
		if isNumber(s.value) && real(s.value) {
			g.values[i][s.Field] = device.Known(s.value)
		}
	}
	return g, nil
}
