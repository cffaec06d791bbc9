package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/elasticps/elasticps/ps"
)

// memoryRules are the optimizers whose memory is measured.
func memoryRules() []ps.Optimizer {
	return []ps.Optimizer{
		ps.SGD(learningRate), ps.Adagrad(learningRate), ps.AdagradRow(learningRate), ps.Adam(learningRate), ps.FTRL(learningRate, 0, 0),
	}
}

func memoryName(o ps.Optimizer) string {
	return "rows.memory." + strings.ReplaceAll(o.Kind.String(), " ", "")
}

func memoryFamilies() []family {
	var families []family
	for _, o := range memoryRules() {
		families = append(families, family{[]string{memoryName(o)}, func(b *bench, ctx context.Context) error { return b.measureRowMemory(ctx, o) }})
	}
	return families
}

// slotBytes is what the slots of a row take.
func slotBytes(o ps.Optimizer, dim int) int {
	switch o.Kind {
	case ps.KindAdagrad:
		return 4 * dim
	case ps.KindAdagradRow:
		return 4
	case ps.KindAdam, ps.KindFTRL:
		return 8 * dim
	}
	return 0
}

// measureRowMemory compares the memory of a server process that has a table of 10 million
// rows with its weights and slots.
func (b *bench) measureRowMemory(ctx context.Context, o ps.Optimizer) error {
	c := tableCase{transportTCP, 1e7, 16, o}
	if b.quick {
		c.rows = 1e6
	}
	d, err := b.deploy(ctx, layout{transport: c.transport, model: c.model(), optimizer: o, servers: 1})
	if err != nil {
		return err
	}
	defer b.retire()
	before, err := d.serverUsage(ctx)
	if err == nil {
		err = d.fill(ctx, c)
	}
	if err != nil {
		return err
	}
	after, err := d.serverUsage(ctx)
	if err != nil || after.Resident == 0 {
		return err // 0: this system does not say
	}
	payload := 4*c.dim + slotBytes(o, c.dim)
	r := measured(memoryName(o), int64(payload)*int64(c.rows), "B/row", 1, []float64{float64(after.Resident) / float64(c.rows)}).against(float64(payload))
	r.Note = fmt.Sprintf("%s rows of %d, whole process (%.0f MB before) against weights and slots", countText(c.rows), c.dim, float64(before.Resident)/1e6)
	return b.out.add(r)
}
