package exporter

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

// TestCase36SentinelsAreDropped: what an exporter writes where it has no value is unknown in
// every figure, condemns nobody, and has no part in a mean.
func TestCase36SentinelsAreDropped(t *testing.T) {
	type page struct {
		parse   func(string) ([]device.Device, error)
		metrics []string
		words   []string
		label   string
	}
	for name, p := range map[string]page{
		"dcgm": {ParseDCGM, []string{
			"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED",
			"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
			"DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_XID_ERRORS",
		}, []string{
			"9223372036854775792", "9223372036854775793", "9223372036854775794", "9223372036854775795", "9.223372036854775794e+18",
			"2147483632", "2147483633", "2147483634", "2147483635", "140737488355328", "140737488355330", "NaN", "+Inf", "-Inf",
		}, "gpu"},
		"npu-exporter": {ParseAscend, []string{
			"npu_chip_info_utilization", "npu_chip_info_overall_utilization", "npu_chip_info_temperature", "npu_chip_info_power",
			"npu_chip_info_hbm_used_memory", "npu_chip_info_hbm_total_memory", "npu_chip_info_used_memory", "npu_chip_info_total_memory",
			"npu_chip_info_health_status", "npu_chip_info_error_code", "npu_chip_info_link_status",
		}, []string{"-1", "-2", "4294967295", "NaN", "+Inf"}, "id"},
	} {
		for _, word := range p.words {
			text := fmt.Sprintf("%s{%s=\"0\"} %d\n", p.metrics[0], p.label, 40)
			for _, m := range p.metrics {
				text += fmt.Sprintf("%s{%s=\"1\"} %s\n", m, p.label, word)
			}
			list, err := p.parse(text)
			require.NoError(t, err)
			require.Len(t, list, 2)
			silent := list[1]
			silent.ID, silent.Vendor, silent.Index = "", "", 0
			require.Equal(t, device.Device{}, silent, "%s: %s", name, word)
			sum, count := 0.0, 0
			for _, d := range list {
				if d.Utilization.Known {
					sum, count = sum+d.Utilization.Value, count+1
				}
			}
			require.InDelta(t, 0.4, sum/math.Max(1, float64(count)), 1e-12)
		}
	}
}
