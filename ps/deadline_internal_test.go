package ps

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Operations under one context share a deadline that leaves each at least the timeout;
// after an eighth of it a new one begins.
func TestOperationsShareADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deadlines{timeout: 8 * time.Second}
		ctx := t.Context()
		first, cancel := d.of(ctx)
		cancel()
		require.NoError(t, first.Err(), "the others go on")
		time.Sleep(999 * time.Millisecond)
		second, _ := d.of(ctx)
		require.Same(t, first, second)
		time.Sleep(time.Millisecond)
		third, _ := d.of(ctx)
		require.NotSame(t, first, third)
		at, ok := third.Deadline()
		require.True(t, ok)
		require.Equal(t, 9*time.Second, time.Until(at))
		<-first.Done()
		require.ErrorIs(t, first.Err(), context.DeadlineExceeded)
		require.Equal(t, context.DeadlineExceeded, context.Cause(first))
		d.close(ErrClosed)
		require.Equal(t, ErrClosed, context.Cause(third))
	})
}

// sliced is a context that cannot be compared.
type sliced struct {
	context.Context
	_ []int
}

// Only what belongs together shares: another context, one with a deadline of its own
// and one that cannot be compared have their own.
func TestOtherContextsHaveTheirOwnDeadline(t *testing.T) {
	d := deadlines{timeout: time.Minute}
	ctx, cancel := context.WithCancelCause(t.Context())
	shared, _ := d.of(ctx)

	other, end := d.of(t.Context())
	require.NotSame(t, shared, other)
	end()
	require.Error(t, other.Err())

	bounded, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	same, _ := d.of(bounded)
	require.Same(t, bounded, same)

	odd, end := d.of(sliced{Context: t.Context()})
	defer end()
	require.NoError(t, odd.Err())
	_, ok := odd.Deadline()
	require.True(t, ok)

	cancel(ErrRefused)
	require.Equal(t, ErrRefused, context.Cause(shared), "it ends with its parent")
	next, _ := d.of(t.Context())
	require.NoError(t, next.Err(), "and makes room for another")
	d.close(nil)
}

func TestSharedDeadlineAllocatesNothing(t *testing.T) {
	d := deadlines{timeout: time.Hour}
	defer d.close(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, cancel := d.of(t.Context())
		cancel()
	}))
}

// valued is a context whose type can be compared but whose value cannot.
type valued struct {
	context.Context
	extra any
}

// A context that only its value shows not to be comparable has its own deadline, each
// time.
func TestIncomparableContextDoesNotPanic(t *testing.T) {
	d := deadlines{timeout: time.Minute}
	defer d.close(nil)
	shared, _ := d.of(t.Context())
	ctx := valued{t.Context(), []int{1}}
	for range 3 {
		own, cancel := d.of(ctx)
		require.NotSame(t, shared, own)
		cancel()
	}
}
