package collective

import (
	"cmp"
	"fmt"
	"slices"
)

// member is one rank, and how it is reached.
type member struct {
	Name    string
	Rank    int    // place among the founders
	Nonce   string // of this start of it
	Address string // TCP
	Local   string `json:",omitempty"` // unix socket, for ranks on the same host
	Host    string
	Process string `json:",omitempty"` // of the host, for ranks that share one
	Node    string
	Offer   Offer
}

// roster is the members of a group, in the order of their ranks. Epoch 0 is no group.
type roster struct {
	Epoch   uint64
	Members []member
}

// rankOf is the place of a member, -1 if it has none.
func (r *roster) rankOf(name string) int {
	return slices.IndexFunc(r.Members, func(m member) bool { return m.Name == name })
}

// on counts the members on a host.
func (r *roster) on(host string) (n int) {
	for _, m := range r.Members {
		if m.Host == host {
			n++
		}
	}
	return n
}

// nodes numbers the nodes of the ranks.
func (r *roster) nodes() []int {
	number := map[string]int{}
	nodes := make([]int, 0, len(r.Members))
	for _, m := range r.Members {
		if _, ok := number[m.Node]; !ok {
			number[m.Node] = len(number)
		}
		nodes = append(nodes, number[m.Node])
	}
	return nodes
}

// proposal is what one rank brings to a round.
type proposal struct {
	Group string
	Self  member
	Last  roster   // the latest group that it knows of
	Dead  []string // members of it that are not to be waited for
	Add   int      // newcomers to wait for; for founders, all
}

// founds reports whether the proposal is that of a founder.
func (p *proposal) founds() bool { return p.Last.Epoch == 0 && p.Add > 0 }

// round is how one group becomes the next. It is complete when every member of the latest
// group has come or is dead, and as many newcomers have come as are waited for: from then
// on there is a latest group again, and whoever came finds itself in it, or finds out that
// it was left out.
type round struct {
	Last   roster
	Joined []member
	Dead   []string
	Add    int
}

// take returns the round with a proposal in it; the round itself does not change.
func (r round) take(p proposal) (round, error) {
	r.Joined, r.Dead = slices.Clone(r.Joined), slices.Clone(r.Dead)
	if p.Last.Epoch > r.Last.Epoch {
		r.Last = p.Last
	}
	if r.has(p) {
		return r, nil
	}
	if err := r.refuses(p); err != nil {
		return r, err
	}
	r.Joined = slices.DeleteFunc(r.Joined, func(m member) bool { return m.Name == p.Self.Name })
	r.Joined = append(r.Joined, p.Self)
	for _, name := range p.Dead {
		if r.Last.rankOf(name) >= 0 && !slices.Contains(r.Dead, name) {
			r.Dead = append(r.Dead, name)
		}
	}
	r.Add = max(r.Add, p.Add)
	return r.seal(), nil
}

// has reports whether the proposal's rank is in a group that is later than it knows of.
func (r *round) has(p proposal) bool {
	i := r.Last.rankOf(p.Self.Name)
	return r.Last.Epoch > p.Last.Epoch && i >= 0 && r.Last.Members[i].Nonce == p.Self.Nonce
}

func (r *round) refuses(p proposal) error {
	switch {
	case slices.Contains(r.Dead, p.Self.Name):
		return fmt.Errorf("%w: the others have given member %q up", ErrConflict, p.Self.Name)
	case p.founds() && r.Last.Epoch > 0:
		return fmt.Errorf("%w: group %q was founded before (epoch %d): use another name", ErrConflict, p.Group, r.Last.Epoch)
	case p.founds() && r.Add > 0 && r.Add != p.Add:
		return fmt.Errorf("%w: group %q has %d founders for others, %d for member %q", ErrConflict, p.Group, r.Add, p.Add, p.Self.Name)
	case p.Last.Epoch > 0 && p.Last.Epoch < r.Last.Epoch:
		return fmt.Errorf("%w: group %q went on to epoch %d without member %q", ErrConflict, p.Group, r.Last.Epoch, p.Self.Name)
	case p.Last.Epoch == 0 && r.Last.rankOf(p.Self.Name) >= 0:
		return fmt.Errorf("%w: group %q has a member %q", ErrConflict, p.Group, p.Self.Name)
	}
	for _, m := range r.Joined {
		if p.founds() && m.Rank == p.Self.Rank && m.Name != p.Self.Name {
			return fmt.Errorf("%w: rank %d is member %q for others, %q here", ErrConflict, m.Rank, m.Name, p.Self.Name)
		}
	}
	return nil
}

// newcomers are those who joined and are not in the latest group, sorted.
func (r *round) newcomers() []member {
	var list []member
	for _, m := range r.Joined {
		if r.Last.rankOf(m.Name) < 0 {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b member) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name)) })
	return list
}

// waitsFor are the names of the members that have not come and are not dead.
func (r *round) waitsFor() []string {
	var names []string
	for _, m := range r.Last.Members {
		if r.joined(m.Name) < 0 && !slices.Contains(r.Dead, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

func (r *round) joined(name string) int {
	return slices.IndexFunc(r.Joined, func(m member) bool { return m.Name == name })
}

// missing says who has not come, for an error.
func (r *round) missing() []string {
	names := r.waitsFor()
	came := r.newcomers()
	if r.Last.Epoch > 0 {
		if n := r.Add - len(came); n > 0 {
			names = append(names, fmt.Sprintf("%d newcomers", n))
		}
		return names
	}
	for rank := range r.Add {
		if !slices.ContainsFunc(came, func(m member) bool { return m.Rank == rank }) {
			names = append(names, fmt.Sprintf("rank %d", rank))
		}
	}
	return names
}

// seal begins the next group if nobody is missing.
func (r round) seal() round {
	came := r.newcomers()
	if len(r.waitsFor()) > 0 || len(came) < r.Add || r.Last.Epoch == 0 && r.Add == 0 {
		return r
	}
	next := roster{Epoch: r.Last.Epoch + 1}
	for _, m := range r.Last.Members {
		if i := r.joined(m.Name); i >= 0 && !slices.Contains(r.Dead, m.Name) {
			next.Members = append(next.Members, r.Joined[i])
		}
	}
	if r.Last.Epoch > 0 && len(next.Members) == 0 {
		return r // newcomers alone are no successor
	}
	next.Members = append(next.Members, came[:r.Add]...)
	return round{Last: next, Joined: came[r.Add:]}
}
