package sim_test

import (
	"flag"
	"reflect"
	"testing"

	"github.com/elasticps/elasticps/internal/sim"
)

var mutantSchedules = flag.Uint64("sim.mutants", 1000, "within how many schedules each deliberate fault is looked for; those that take more are not failures below 20000")

// rare are the faults that take thousands of schedules.
var rare = map[string]bool{"AnyChange": true, "DropOrphans": true, "FreshRevision": true, "KeepIgnoresSet": true, "LaterSet": true, "NoLeaseWait": true, "RestoreAlways": true}

// TestMutants runs with each deliberate fault until an invariant breaks.
func TestMutants(t *testing.T) {
	kind := reflect.TypeFor[sim.Mutants]()
	for i := range kind.NumField() {
		t.Run(kind.Field(i).Name, func(t *testing.T) {
			t.Parallel()
			var m sim.Mutants
			reflect.ValueOf(&m).Elem().Field(i).SetBool(true)
			for n := uint64(1); n <= *mutantSchedules; n++ {
				if err := sim.New(n, m, false).Run(); err != nil {
					t.Logf("found by schedule %d: %v", n, err)
					return
				}
			}
			if rare := rare[kind.Field(i).Name]; *mutantSchedules >= 20000 || !rare {
				t.Errorf("not found within %d schedules", *mutantSchedules)
			}
		})
	}
}
