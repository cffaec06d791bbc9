package ps

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

type ids = []shard.ServerID

// TestCutOffRule is the rule by which clients have an owner replaced, and by whom.
func TestCutOffRule(t *testing.T) {
	fine := func(of ...shard.ServerID) opinion { return opinion{Served: of} }
	cut := func(from ...shard.ServerID) opinion { return opinion{Unreached: from} }
	for name, c := range map[string]struct {
		opinions  []opinion
		want      ids
		successor shard.ServerID // of s1, whose followers are s2 and s3
	}{
		"nobody":                      {nil, nil, ""},
		"all served":                  {[]opinion{fine("s1", "s2"), fine("s1")}, nil, ""},
		"the only client":             {[]opinion{cut("s1")}, ids{"s1"}, "s2"},
		"one of two":                  {[]opinion{cut("s1"), fine("s1")}, nil, "s2"},
		"one of two, the other idle":  {[]opinion{cut("s1"), fine()}, ids{"s1"}, "s2"},
		"two of three":                {[]opinion{cut("s1"), cut("s1"), fine("s1")}, ids{"s1"}, "s2"},
		"two of four":                 {[]opinion{cut("s1"), cut("s1"), fine("s1"), fine("s1")}, nil, "s2"},
		"served a moment ago":         {[]opinion{{Served: ids{"s1", "s2"}, Unreached: ids{"s1"}}}, ids{"s1"}, "s2"},
		"one broken client of many":   {[]opinion{cut("s1", "s2", "s3"), fine("s1"), fine("s2"), fine("s3")}, nil, ""},
		"the only client reaches one": {[]opinion{cut("s1", "s2")}, ids{"s1", "s2"}, "s3"},
		"the only client is broken":   {[]opinion{cut("s1", "s2", "s3")}, ids{"s1", "s2", "s3"}, ""},
		"fewer miss the other one":    {[]opinion{cut("s1", "s2"), cut("s1", "s2"), cut("s1", "s3")}, ids{"s1", "s2", "s3"}, "s3"},
	} {
		t.Run(name, func(t *testing.T) {
			got, all := cutOff(c.opinions)
			require.Equal(t, c.want, got)
			require.Equal(t, c.successor, all.successor("s1", ids{"s2", "s3"}))
		})
	}
}
