package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/minio/minio-go/v7"
)

// abortPatience is how long a failed Put tries to take back what it has sent.
const abortPatience = 10 * time.Second

// Put implements checkpoint.Storage. While one part is on its way the next one is written.
func (s *Store) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error {
	if err := checkpoint.CheckObject(name); err != nil {
		return err
	}
	if size < 0 || size > MaxObjectBytes {
		return fmt.Errorf("s3store: object %s of %d bytes, must be 0 to %d", name, size, int64(MaxObjectBytes))
	}
	part := max(s.part, (size+maxParts-1)/maxParts)
	u := &upload{ctx: ctx, s: s, key: s.prefix + name, left: size, buf: make([]byte, 0, min(part, size))}
	var err error
	if size > part {
		u.sent = make(chan error, 1)
		u.sent <- nil
		u.spare = make([]byte, 0, part)
		u.id, err = s.core.NewMultipartUpload(ctx, s.bucket, u.key, minio.PutObjectOptions{})
	}
	if err == nil {
		err = write(u)
	}
	if err == nil {
		err = u.complete()
	}
	if err != nil {
		return s.fail(name, errors.Join(err, u.abort()))
	}
	return nil
}

// upload gathers the parts of one object. It lives no longer than the call that ctx belongs to.
type upload struct {
	ctx   context.Context
	s     *Store
	key   string
	id    string // of the multipart upload; empty when the object fits into one part
	left  int64  // bytes still to be written
	buf   []byte // what the next part has so far
	spare []byte // of the part that is on its way, or was last
	sent  chan error
	parts []minio.CompletePart // guarded by sent: who has received from it may use them
}

// Write implements io.Writer.
func (u *upload) Write(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	if int64(len(p)) > u.left {
		return 0, fmt.Errorf("s3store: object has %d bytes more than announced", int64(len(p))-u.left)
	}
	written := 0
	for written < len(p) {
		n := min(len(p)-written, cap(u.buf)-len(u.buf))
		u.buf = append(u.buf, p[written:written+n]...)
		written += n
		u.left -= int64(n)
		if len(u.buf) == cap(u.buf) && u.left > 0 {
			if err := u.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// flush sends the part in buf once the one before it has arrived, and returns without waiting for
// its own end.
func (u *upload) flush() error {
	if err := <-u.sent; err != nil { // the requests end with ctx
		u.sent <- err
		return err
	}
	part := u.buf
	u.buf, u.spare = u.spare[:0], part
	go func() {
		sent, err := u.s.core.PutObjectPart(u.ctx, u.s.bucket, u.key, u.id, len(u.parts)+1,
			bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{})
		if err == nil {
			u.parts = append(u.parts, minio.CompletePart{PartNumber: sent.PartNumber, ETag: sent.ETag})
		}
		u.sent <- err
	}()
	return nil
}

// complete makes the object visible.
func (u *upload) complete() error {
	if u.left > 0 {
		return fmt.Errorf("%d bytes fewer than announced", u.left)
	}
	if err := context.Cause(u.ctx); err != nil {
		return err
	}
	if u.id == "" {
		_, err := u.s.core.PutObject(u.ctx, u.s.bucket, u.key, bytes.NewReader(u.buf), int64(len(u.buf)), "", "", minio.PutObjectOptions{})
		return err
	}
	if err := u.flush(); err != nil {
		return err
	}
	err := <-u.sent
	u.sent <- err
	if err != nil {
		return err
	}
	_, err = u.s.core.CompleteMultipartUpload(u.ctx, u.s.bucket, u.key, u.id, u.parts, minio.PutObjectOptions{})
	return err
}

// abort takes back what has been sent, when no request is under way any more.
func (u *upload) abort() error {
	if u.id == "" {
		return nil
	}
	<-u.sent // the error has been reported, or another one before it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortPatience)
	defer cancel()
	err := u.s.core.AbortMultipartUpload(ctx, u.s.bucket, u.key, u.id)
	if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
		return fmt.Errorf("abort: %w", err)
	}
	return nil
}
