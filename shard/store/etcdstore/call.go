package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ready reports why the store takes no call.
func (s *Store) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.closing:
		return store.ErrClosed
	default:
		return nil
	}
}

// read asks the servers what may be asked twice: it asks again, after a pause,
// while they are unavailable and there is time.
func (s *Store) read(ctx context.Context, what string, ask func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	for pause := firstBackoff; ; pause = min(2*pause, lastBackoff) {
		err := s.ready(ctx)
		if err == nil {
			err = s.ask(ctx, short, ask)
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, store.ErrUnavailable) && s.wait(short, pause) {
			continue
		}
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return fmt.Errorf("etcdstore: %s: %w", what, err)
	}
}

// change asks the servers for a change, once. If it may have been sent when the
// answer failed to come, the error wraps store.ErrUnknown.
func (s *Store) change(ctx context.Context, what string, ask func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	err := s.ready(ctx)
	if err == nil {
		if err = s.ask(ctx, short, ask); err != nil && !refused(err) {
			err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
		}
	}
	if err != nil {
		return fmt.Errorf("etcdstore: %s: %w", what, err)
	}
	return nil
}

// ask asks once. short is ctx within the bounds of one call.
func (s *Store) ask(ctx, short context.Context, ask func(context.Context) error) error {
	var cause error
	err := s.classify(ctx, ask(context.WithValue(short, causeKey{}, &cause)))
	if cause != nil && errors.Is(err, store.ErrUnavailable) {
		err = fmt.Errorf("%w: %s", err, status.Convert(cause).Message())
	}
	return err
}

// causeKey is the key of a context's value: where a call's last error goes as
// gRPC reports it. The etcd client replaces it by that of the context when this
// has ended, and with it why there was no connection.
type causeKey struct{}

func noteCause(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if cause, ok := ctx.Value(causeKey{}).(*error); ok {
		*cause = err
	}
	return err
}

// wait pauses, until the store closes at most. It reports false if ctx ended
// before.
func (s *Store) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closing:
		return true
	case <-ctx.Done():
		return false
	}
}

// classify gives an error of the client the kind that callers branch on.
func (s *Store) classify(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.ready(context.Background()) != nil:
		return fmt.Errorf("%w: %w", store.ErrClosed, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", store.ErrLeaseNotFound, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", store.ErrLimit, err)
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	switch code(err) {
	case codes.ResourceExhausted: // a message beyond the limits of gRPC
		return fmt.Errorf("%w: %w", store.ErrLimit, err)
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled, codes.Aborted, codes.Internal, codes.Unknown:
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// refused reports whether an error is the servers' word that nothing changed.
func refused(err error) bool {
	switch code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	}
	return false
}

func code(err error) codes.Code {
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		return etcd.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return status.Code(err)
}
