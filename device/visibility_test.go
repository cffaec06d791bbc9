package device

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// rack returns n devices of a vendor, the second half of which have UUIDs that begin
// alike.
func rack(vendor Vendor, n int) []Device {
	list := make([]Device, n)
	for i := range list {
		list[i] = Device{ID: fmt.Sprintf("%s-%d", vendor, i), Vendor: vendor, Index: i, UUID: fmt.Sprintf("GPU-%d%d", i, i)}
		if i >= n/2 {
			list[i].UUID = fmt.Sprintf("GPU-f-%d", i)
		}
	}
	return list
}

func indexes(list []Device) []int {
	at := make([]int, len(list))
	for i, d := range list {
		at[i] = d.Index
	}
	return at
}

func TestVisible(t *testing.T) {
	type env = map[string]string
	cases := []struct {
		vendor Vendor
		env    env
		want   []int
	}{
		{NVIDIA, env{}, []int{0, 1, 2, 3}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": ""}, nil},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "0,2,-1,1"}, []int{0, 2}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "3,1"}, []int{3, 1}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": " 1 , +2"}, []int{1, 2}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "1gpu2,2ampere"}, []int{1, 2}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "1,4,0"}, []int{1}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "1,x,0"}, []int{1}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "1,99999999999999999999,0"}, []int{1}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "0,1,0"}, nil},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, nil},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "GPU-11,GPU-00"}, []int{1, 0}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-f-2"}, []int{1, 2}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-f,GPU-11"}, []int{0}}, // GPU-f is ambiguous
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "GPU-0,1"}, []int{0}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "1,GPU-0"}, []int{1}},
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-00"}, nil}, // one device twice
		{NVIDIA, env{"CUDA_VISIBLE_DEVICES": "MIG-5"}, nil},
		{NVIDIA, env{"HIP_VISIBLE_DEVICES": "1"}, []int{0, 1, 2, 3}},
		{Ascend, env{}, []int{0, 1, 2, 3}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "1,2,3"}, []int{1, 2, 3}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "1, 2,3"}, []int{1}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "1 ,2"}, []int{1}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "1,3,8"}, []int{1, 3}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "1,2,-1,3"}, []int{1, 2}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "0,2,1,3"}, []int{0, 2}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": "0,0"}, []int{0}},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": ""}, nil},
		{Ascend, env{"ASCEND_RT_VISIBLE_DEVICES": " 1"}, nil},
		{MooreThreads, env{"MUSA_VISIBLE_DEVICES": "2,0"}, []int{2, 0}},
		{MooreThreads, env{"MUSA_VISIBLE_DEVICES": "2,7,0"}, []int{2}},
		{AMD, env{"ROCR_VISIBLE_DEVICES": "2,GPU-00"}, []int{2, 0}},
		{AMD, env{"ROCR_VISIBLE_DEVICES": "1,1,0"}, []int{1}},
		{AMD, env{"ROCR_VISIBLE_DEVICES": "1,2,3", "HIP_VISIBLE_DEVICES": "2,0"}, []int{3, 1}},
		{AMD, env{"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1,2"}, []int{2}}, // there is no third
		{AMD, env{"ROCR_VISIBLE_DEVICES": "3,2", "CUDA_VISIBLE_DEVICES": "1"}, []int{2}},
		{AMD, env{"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, []int{0}},
		{AMD, env{"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, nil},
		{CPU, env{"CUDA_VISIBLE_DEVICES": ""}, []int{0, 1, 2, 3}},
	}
	for _, c := range cases {
		t.Run(fmt.Sprint(c.vendor, c.env), func(t *testing.T) {
			all := append(rack("other", 2), rack(c.vendor, 4)...)
			all = append(all, Device{ID: "gone", Vendor: c.vendor, Health: Gone})
			slices.Reverse(all)
			lookup := func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
			require.Equal(t, append([]int{}, c.want...), indexes(Visible(c.vendor, all, lookup)))
		})
	}
}

func TestVisibilityMIG(t *testing.T) {
	all := []Device{{ID: "a", UUID: "MIG-aa", Index: 0}, {ID: "b", UUID: "MIG-GPU-1/2/0", Index: 1}, {ID: "c", UUID: "GPU-1", Index: 2}}
	v, err := ParseVisibility(CUDAVisibleDevices, "MIG-GPU-1/2/0,MIG-a,GPU-1")
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, indexes(v.Apply(all)))
}

func TestFormatVisibility(t *testing.T) {
	all := rack(NVIDIA, 4)
	visible := []Device{all[3], all[1]}
	for variable, want := range map[string]string{
		CUDAVisibleDevices: "GPU-f-3,GPU-11", ROCRVisibleDevices: "GPU-f-3,GPU-11",
		AscendVisibleDevices: "1,3", MUSAVisibleDevices: "3,1", HIPVisibleDevices: "3,1",
	} {
		got, err := FormatVisibility(variable, all, visible)
		require.NoError(t, err)
		require.Equal(t, want, got, variable)
		none, err := FormatVisibility(variable, all, nil)
		require.NoError(t, err)
		v, err := ParseVisibility(variable, none)
		require.NoError(t, err)
		require.Empty(t, v.Apply(all))
	}
	all[3].UUID = "GPU-1" // the beginning of the other's
	got, err := FormatVisibility(CUDAVisibleDevices, all, visible)
	require.NoError(t, err)
	require.Equal(t, "3,1", got)
	_, err = FormatVisibility(CUDAVisibleDevices, all, []Device{{ID: "x"}})
	require.ErrorContains(t, err, "x is not among the 4 devices")
	_, err = FormatVisibility(CUDAVisibleDevices, all, []Device{all[0], all[0]})
	require.ErrorContains(t, err, "nvidia-0 stands twice")
	_, err = FormatVisibility("PATH", all, nil)
	require.ErrorContains(t, err, `"PATH" is not a visibility variable`)
	_, err = ParseVisibility("PATH", "0")
	require.ErrorContains(t, err, `"PATH" is not a visibility variable`)
}

// FuzzVisibility: whatever stands in a variable, the result is a list of distinct devices,
// and formatting it gives the same list.
func FuzzVisibility(f *testing.F) {
	for _, value := range []string{"", "0,2,-1,1", "1, 2", "GPU-0,GPU-f", "MIG-1,,", "0,0", "+1,00,3x", "\x00,1", "GPU-,GPU-1"} {
		for rule := range visibilityRules {
			f.Add(rule, value)
		}
	}
	all := rack(NVIDIA, 5)
	f.Fuzz(func(t *testing.T, rule int, value string) {
		variable := visibilityRules[(rule%len(visibilityRules)+len(visibilityRules))%len(visibilityRules)].variable
		v, err := ParseVisibility(variable, value)
		require.NoError(t, err)
		visible := v.Apply(all)
		_, repeats := firstRepeat(indexes(visible))
		require.False(t, repeats)
		text, err := FormatVisibility(variable, all, visible)
		require.NoError(t, err)
		again, err := ParseVisibility(variable, text)
		require.NoError(t, err)
		require.Equal(t, visible, again.Apply(all))
	})
}
