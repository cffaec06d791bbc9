package training

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStall(t *testing.T) {
	lost := Stranded{Server: "ps-1", Shards: 3}
	type moment struct {
		at  time.Duration
		p   Progress
		out Stranded
	}
	one, none := Progress{Steps: 9, Workers: 1}, Progress{Steps: 9}
	for name, tc := range map[string]struct {
		moments []moment
		want    string
	}{
		"no worker yet":       {[]moment{{0, none, Stranded{}}, {time.Hour, none, Stranded{}}}, ""},
		"steps are slow":      {[]moment{{0, one, Stranded{}}, {time.Hour, one, Stranded{}}}, ""},
		"lost":                {[]moment{{0, one, Stranded{}}, {time.Hour, one, lost}, {time.Hour + lostAfter, one, lost}}, `server "ps-1" is down and 3 shards are lost`},
		"lost for a moment":   {[]moment{{0, one, lost}, {9 * time.Second, one, Stranded{}}, {18 * time.Second, one, lost}}, ""},
		"lost but going on":   {[]moment{{0, one, lost}, {lostAfter, Progress{Step: 1, Steps: 9, Workers: 1}, lost}}, ""},
		"workers left":        {[]moment{{0, one, Stranded{}}, {1, none, Stranded{}}, {1 + workerlessAfter, none, Stranded{}}}, "no worker is left"},
		"another worker came": {[]moment{{0, one, Stranded{}}, {1, none, Stranded{}}, {2, one, Stranded{}}, {3, none, Stranded{}}, {2 + workerlessAfter, none, Stranded{}}}, ""},
		"all is done":         {[]moment{{0, one, lost}, {time.Hour, Progress{Done: true}, lost}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s stall
			var err error
			for _, m := range tc.moments {
				require.NoError(t, err)
				err = s.check(time.Unix(1_000_000, 0).Add(m.at), m.p, m.out)
			}
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestFirstOf(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	require.NoError(t, firstOf([]error{nil, nil}))
	require.Equal(t, a, firstOf([]error{nil, a}))
	err := firstOf([]error{a, nil, b, b})
	require.ErrorIs(t, err, a)
	require.EqualError(t, err, "a, and 2 more")
}
