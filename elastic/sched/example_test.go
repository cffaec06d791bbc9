package sched_test

import (
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/elastic/sched"
)

func Example() {
	cluster, err := sched.New(sched.Config{Nodes: []sched.Node{
		{Name: "a", CPU: 16 * sched.Whole, Devices: 2, Model: "A100", Vendor: "nvidia"},
		{Name: "b", CPU: 16 * sched.Whole, Devices: 1, Model: "910B", Vendor: "ascend"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	devices, share, _ := sched.DevicesOf(0.5)
	half, err := cluster.Place(sched.Task{ID: "half", Request: sched.Request{Devices: devices, Share: share}})
	fmt.Println(half.Node, half.Devices.List(), half.Share, err)

	pair := sched.Task{ID: "pair", Request: sched.Request{Devices: 2}}
	whole, err := cluster.Place(pair)
	fmt.Println(whole.Node, whole.Devices.List(), err)

	more := sched.Task{ID: "more", Request: sched.Request{Devices: 2}}
	if _, err = cluster.Place(more); errors.Is(err, sched.ErrNoRoom) {
		for _, r := range cluster.Explain(more) {
			fmt.Println(r)
		}
	}
	// Output:
	// b [0] 0.5 <nil>
	// a [0 1] <nil>
	// a: no-devices: devices 2 of 0
	// b: too-small: devices 2 of 1
}
