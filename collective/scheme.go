package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticps/elasticps/shard"
)

// Scheme says how the gradients of a model meet.
type Scheme uint8

// The schemes. Zero stands for the choice by SelectScheme.
const (
	// AllReduceScheme is an all-reduce among the workers, each of which has the whole model.
	AllReduceScheme Scheme = iota + 1
	// ServerScheme is parameter servers, which divide the model among them.
	ServerScheme
)

var schemeNames = [...]string{0: "auto", AllReduceScheme: "all-reduce", ServerScheme: "parameter-server"}

// String returns the word that ParseScheme reads.
func (s Scheme) String() string {
	if int(s) < len(schemeNames) {
		return schemeNames[s]
	}
	return fmt.Sprintf("scheme %d", s)
}

// ParseScheme returns the scheme of a name as in String; "" is "auto". Other names are
// ErrArgument, with the list of those that there are.
func ParseScheme(name string) (Scheme, error) {
	if name == "" {
		return 0, nil
	}
	if i := slices.Index(schemeNames[:], name); i >= 0 {
		return Scheme(i), nil
	}
	return 0, argument("scheme %.64q, must be one of %s", name, strings.Join(schemeNames[:], ", "))
}

// MinServerParameters is the number of parameters from which on a dense model is trained on
// parameter servers.
const MinServerParameters = 100_000_000

// SelectScheme chooses how a model is trained, and says why: the forced scheme, if there is
// one; parameter servers for a model with sparse layers, of which a step touches few rows,
// or with MinServerParameters or more; all-reduce for the others, whose gradients are dense
// and small enough that every worker may hold and send all of them.
func SelectScheme(m shard.Model, forced Scheme) (Scheme, string) {
	if forced != 0 {
		return forced, "forced"
	}
	parameters := int64(0)
	for _, l := range m.Layers {
		if l.Sparse {
			return ServerScheme, fmt.Sprintf("layer %q is sparse", l.Name)
		}
		parameters += l.Elems()
	}
	if parameters >= MinServerParameters {
		return ServerScheme, fmt.Sprintf("%d parameters, not below %d", parameters, MinServerParameters)
	}
	return AllReduceScheme, fmt.Sprintf("dense, with %d parameters, below %d", parameters, MinServerParameters)
}
