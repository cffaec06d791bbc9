package ps

import (
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/internal/wire"
)

// TableStatus says how large one table is and what became of its rows. What is counted was
// counted by the owner of a shard at the time and begins at zero with each server: it does
// not shrink while the same servers run.
type TableStatus struct {
	Table      string // name of the layer
	Rows       int64  // in the shards owned
	StateBytes int64  // memory of those shards
	Evicted    uint64 // rows that made room for others, see Table.MaxRows and Table.Evict
	Expired    uint64 // rows that were not pushed to for long, see Table.ExpireAfter and Table.ExpireClocks
	Deleted    uint64 // rows removed by Client.DeleteRows
	Waiting    uint64 // gradients dropped because their ids were not admitted yet, see Table.AdmitAfter
	Refused    uint64 // gradients for which there was no room: of pushes that ErrTableFull failed, and those left out
	NotFinite  uint64 // gradients left out because they were not finite, see NonFinite
}

// maxTableStatus bounds the tables in one message: those of the first sparse layers.
const maxTableStatus = 32

// add adds what another server, or shard, has counted.
func (s *TableStatus) add(o TableStatus) {
	s.Rows += o.Rows
	s.StateBytes += o.StateBytes
	s.count(o)
}

func (s *TableStatus) count(o TableStatus) {
	s.Evicted += o.Evicted
	s.Expired += o.Expired
	s.Deleted += o.Deleted
	s.Waiting += o.Waiting
	s.Refused += o.Refused
	s.NotFinite += o.NotFinite
}

// counted notes what became of rows, if this copy is the owner's: the others see the same. The
// caller holds mu.
func (r *replica) counted(o TableStatus) {
	if r.copy.Owns() {
		r.counts.count(o)
	}
}

// countedPush notes what a push did.
func (r *replica) countedPush(p table.Result) {
	if p.Evicted|p.Waiting|p.Refused != 0 {
		r.counted(TableStatus{Evicted: uint64(p.Evicted), Waiting: uint64(p.Waiting), Refused: uint64(p.Refused)})
	}
}

// refused notes a push that the table has no room for, and returns why.
func (r *replica) refused(h *wire.Header, ids []int64, c code) code {
	if c == codeTableFull {
		r.counted(TableStatus{Refused: uint64(len(ids))})
	}
	return c
}

// tableNumber is the number of a layer among the sparse ones, those before it if it is none.
func (j Job) tableNumber(layer int) (n int) {
	for _, l := range j.Model.Layers[:layer] {
		if l.Sparse {
			n++
		}
	}
	return n
}

// tableStatus returns the status of the first tables of a model, without counts.
func (j Job) tableStatus() []TableStatus {
	tables := make([]TableStatus, 0, min(j.tableNumber(len(j.Model.Layers)), maxTableStatus))
	for _, l := range j.Model.Layers {
		if l.Sparse && len(tables) < cap(tables) {
			tables = append(tables, TableStatus{Table: l.Name})
		}
	}
	return tables
}

// tables is what the servers have said of tables. The caller holds c.mu.
func (c *Coordinator) tables() []TableStatus {
	all := c.cfg.Job.tableStatus()
	for _, s := range c.servers {
		for i, t := range s.load.Tables[:min(len(s.load.Tables), len(all))] {
			if s.up {
				all[i].add(t)
			} else { // others have its rows by now
				all[i].count(t)
			}
		}
	}
	return all
}
