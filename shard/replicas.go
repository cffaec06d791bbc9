package shard

import (
	"cmp"
	"slices"
)

// FollowerPlan says which followers to make and which to let go. From is the owner of
// the shard, To the follower.
type FollowerPlan struct {
	Add, Drop []Move
}

// PlanFollowers plans what gives each shard as many followers as are wanted, or as there
// are other servers for. servers are those that are up. A new follower is in another
// failure domain than the owner and the other followers if there is one, and among
// those on the server with the fewest bytes, as owner or follower; ties go to the lower
// ID. A follower on a draining server is let go when there are enough others, or no room for
// one more. Of others that are too many, one is let go in each plan: the one that would be made
// last. Shards with a move pending, or an owner that is not up, get none for now. At most
// one follower is added to a shard in one plan. avoid has servers that could not follow a
// shard the last time, and are taken if there is no other.
func PlanFollowers(records []Record, shards []Shard, servers []Server, want int, avoid map[ID]ServerID) FollowerPlan {
	bytes := make(map[ServerID]int64, len(servers))
	for _, r := range records {
		size := shards[r.Assignment.Shard].Bytes()
		bytes[r.Assignment.Owner] += size
		for _, id := range r.Followers.IDs() {
			bytes[id] += size
		}
	}
	var plan FollowerPlan
	for _, r := range records {
		id, owner := r.Assignment.Shard, r.Assignment.Owner
		missing := missingFollowers(r, servers, want)
		isFull := r.Followers.Len() == MaxFollowers
		for _, s := range servers {
			if (missing <= 0 || isFull) && s.Draining && r.Followers.Has(s.ID) {
				plan.Drop, isFull = append(plan.Drop, Move{id, owner, s.ID}), false
			}
		}
		up := slices.ContainsFunc(servers, func(s Server) bool { return s.ID == owner })
		if r.Pending != nil || !up {
			continue
		}
		if missing < 0 {
			from := worstFollower(r, servers, bytes)
			bytes[from] -= shards[id].Bytes()
			plan.Drop = append(plan.Drop, Move{id, owner, from})
		}
		if missing <= 0 || r.Followers.Len() == MaxFollowers {
			continue
		}
		to := bestFollower(r, servers, bytes, avoid[id])
		bytes[to] += shards[id].Bytes()
		plan.Add = append(plan.Add, Move{id, owner, to})
	}
	return plan
}

// Exposed is how many shards have fewer followers than are wanted and possible.
func Exposed(records []Record, servers []Server, want int) (n int) {
	for _, r := range records {
		if missingFollowers(r, servers, want) > 0 {
			n++
		}
	}
	return n
}

// missingFollowers is how many followers a shard could have more, up to what is wanted.
func missingFollowers(r Record, servers []Server, want int) int {
	if r.Assignment.Owner == "" {
		return 0
	}
	possible, healthy := 0, 0
	for _, s := range servers {
		if s.Draining || s.ID == r.Assignment.Owner {
			continue
		}
		possible++
		if r.Followers.Has(s.ID) {
			healthy++
		}
	}
	return min(max(want, 0), possible) - healthy
}

// bestFollower is the server for one more follower. There is one.
func bestFollower(r Record, servers []Server, bytes map[ServerID]int64, avoid ServerID) ServerID {
	taken := map[string]bool{}
	for _, s := range servers {
		if s.ID == r.Assignment.Owner || r.Followers.Has(s.ID) {
			taken[s.Domain] = true
		}
	}
	order := func(a, b Server) int {
		if (a.ID == avoid) != (b.ID == avoid) {
			if b.ID == avoid {
				return -1
			}
			return 1
		}
		if taken[a.Domain] != taken[b.Domain] {
			if taken[b.Domain] {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(bytes[a.ID], bytes[b.ID]), cmp.Compare(a.ID, b.ID))
	}
	free := slices.DeleteFunc(slices.Clone(servers), func(s Server) bool {
		return s.Draining || s.ID == r.Assignment.Owner || r.Followers.Has(s.ID)
	})
	return slices.MinFunc(free, order).ID
}

// worstFollower is the follower that is let go when there are too many: one in the failure
// domain of another copy if there is one, on the server with the most bytes.
func worstFollower(r Record, servers []Server, bytes map[ServerID]int64) ServerID {
	copies := map[string]int{}
	for _, s := range servers {
		if s.ID == r.Assignment.Owner || r.Followers.Has(s.ID) && !s.Draining {
			copies[s.Domain]++
		}
	}
	healthy := slices.DeleteFunc(slices.Clone(servers), func(s Server) bool { return s.Draining || !r.Followers.Has(s.ID) })
	return slices.MaxFunc(healthy, func(a, b Server) int {
		return cmp.Or(cmp.Compare(min(copies[a.Domain], 2), min(copies[b.Domain], 2)), cmp.Compare(bytes[a.ID], bytes[b.ID]), cmp.Compare(a.ID, b.ID))
	}).ID
}

// Correct returns the order that brings a server's copy in line with the record, and
// whether it is out of line at all. The owner has to serve if its copy is a follower's, or is
// frozen since before its promotion; and has to give up what it serves since before it was
// given the shard anew. A server that is neither owner nor follower nor part of the pending
// move has to give its copy up. Kind 0 stands for a copy that was created there and then
// recorded elsewhere, before it had any client.
func (r Record) Correct(server ServerID, c Copy) (e Effect, wrong bool) {
	a, p := r.Assignment, r.Pending
	e = Effect{Shard: a.Shard, Server: server, Peer: a.Owner, Epoch: a.Epoch, Attempt: a.Attempt}
	switch {
	case p != nil && (server == p.From || server == p.To), r.Followers.Has(server):
		return e, false
	case a.Owner == server && c.Serves():
		e.Kind = EffectDepose
		return e, p == nil && c.Epoch < a.Epoch
	case a.Owner == server:
		e.Kind = EffectActivate
		return e, p == nil && (c.State == CaughtUp || c.State == Frozen && c.Attempt < a.Attempt)
	case c.Owns() && a.Attempt == 0 && c.Attempt == 0:
		return e, true
	case c.Owns():
		e.Kind = EffectDepose
		return e, true
	}
	e.Kind = EffectDiscard
	return e, c.State == Receiving || c.State == CaughtUp
}
