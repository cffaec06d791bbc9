package sim_test

import (
	"flag"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/sim"
)

var search = flag.Uint64("sim.search", 0, "look for the first seed that shows each deliberate fault, up to this one")

// shows has for each deliberate fault the first seed that shows it, as of the present
// schedules: whoever changes the simulation runs TestMutants with -sim.search 20000 and
// writes down what it says. A fault with a low seed shows in most schedules; those with
// high ones need several things to happen within a lease, and say how rare these are.
var shows = map[string]uint64{
	"AckBeforeConfirm":  1,
	"DuplicateAtOnce":   1,
	"NoForward":         1,
	"NoWindowsInState":  1,
	"ReportIsProof":     1,
	"RetainAlone":       1,
	"RetainMissesOne":   1,
	"SkipWindow":        1,
	"RefillOnSilence":   2,
	"UnknownIsDone":     3,
	"KeepBeforeDrop":    6,
	"NoJoin":            6,
	"ReadUnconfirmed":   8,
	"AnyStream":         13,
	"FreshRevision":     23,
	"LaterSet":          27,
	"PromoteInPlace":    162,
	"AnyChange":         57,
	"AnyLineage":        44012,
	"NoLease":           29,
	"RetainByFollowers": 31,
	"DropOrphans":       63,
	"DenyAndForget":     79,
	"AckWithoutLease":   274,
	"NoLeaseWait":       219,
	"PromoteAbsent":     275,
	"NoDrain":           295,
	"KeepIgnoresSet":    397,
	"RestoreAlways":     1369,
	"DropUnasked":       2031,
	"FollowWhileMute":   8249,
}

// showsTwins has the same for the faults that need several processes of one server.
var showsTwins = map[string]uint64{
	"EarlierRunReturns": 44, // the first that loses an update
	"LaterRunIsProof":   18,
}

// TestMutants runs with each deliberate fault a seed that shows it, and without it.
func TestMutants(t *testing.T) {
	kind := reflect.TypeFor[sim.Mutants]()
	if *search == 0 {
		require.Equal(t, kind.NumField(), len(shows)+len(showsTwins))
	}
	for i := range kind.NumField() {
		name := kind.Field(i).Name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m sim.Mutants
			reflect.ValueOf(&m).Elem().Field(i).SetBool(true)
			n, create := shows[name], world(sim.New)
			if n == 0 {
				n, create = showsTwins[name], sim.NewTwins
			}
			if *search > 0 {
				find(t, name, create, m)
				return
			}
			err := create(n, m, false).Run()
			require.Error(t, err, "seed %d does not show it any more; look for another with -sim.search 20000", n)
			t.Log(err)
			require.NoError(t, create(n, sim.Mutants{}, false).Run())
		})
	}
}

// find looks for the first seed that shows a fault.
func find(t *testing.T, name string, create world, m sim.Mutants) {
	for n := uint64(1); n <= *search; n++ {
		if err := create(n, m, false).Run(); err != nil {
			t.Logf("found\t%q: %d, // %v", name, n, err)
			return
		}
	}
	t.Errorf("no seed up to %d shows it", *search)
}
