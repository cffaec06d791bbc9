package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// MinPartBytes is the smallest part of a multipart upload that S3 takes.
	MinPartBytes = 5 << 20
	// DefaultPartBytes is the size of the parts unless the configuration says otherwise.
	DefaultPartBytes = 8 << 20
	// MaxObjectBytes is the largest object that S3 takes.
	MaxObjectBytes = 5 << 40

	maxParts = 10_000
	attempts = 4 // of one read
)

// Config says where the objects are. Endpoint and Bucket must be set; the zero value of everything
// else is the default.
type Config struct {
	// Endpoint is host or host:port of the server, without scheme.
	Endpoint string
	// Insecure speaks HTTP instead of HTTPS.
	Insecure bool
	// Region is the bucket's; empty asks the server.
	Region string
	// Bucket exists already.
	Bucket string
	// Prefix goes before the names of all objects, followed by a slash, if it is not empty.
	Prefix string
	// AccessKey and SecretKey; both empty means: from the environment (AWS_ACCESS_KEY_ID and
	// so on), the file of shared credentials, or the machine's role, in that order.
	AccessKey, SecretKey string
	// PartBytes is the size of the parts of large objects; 0 means DefaultPartBytes.
	PartBytes int64
}

func (c *Config) validate() error {
	var errs []error
	if c.Endpoint == "" {
		errs = append(errs, errors.New("s3store: config: Endpoint is empty"))
	}
	if c.Bucket == "" {
		errs = append(errs, errors.New("s3store: config: Bucket is empty"))
	}
	if c.Prefix != "" {
		if err := checkpoint.CheckObject(c.Prefix); err != nil {
			errs = append(errs, fmt.Errorf("s3store: config: Prefix: %w", err))
		}
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		errs = append(errs, errors.New("s3store: config: of AccessKey and SecretKey one is empty"))
	}
	if c.PartBytes != 0 && (c.PartBytes < MinPartBytes || c.PartBytes > MaxObjectBytes/maxParts) {
		errs = append(errs, fmt.Errorf("s3store: config: PartBytes is %d, must be 0 or %d to %d", c.PartBytes, MinPartBytes, int64(MaxObjectBytes/maxParts)))
	}
	return errors.Join(errs...)
}

// Store is a checkpoint.Storage in a bucket. Make one with New.
type Store struct {
	core   minio.Core
	bucket string
	prefix string // with its slash
	part   int64
}

var _ checkpoint.Storage = (*Store)(nil)

// New returns the storage. It reports every fault of the configuration at once and does not talk
// to the server.
func New(c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	options := &minio.Options{Secure: !c.Insecure, Region: c.Region}
	if c.AccessKey != "" {
		options.Creds = credentials.NewStaticV4(c.AccessKey, c.SecretKey, "")
	} else {
		options.Creds = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}
	client, err := minio.New(c.Endpoint, options)
	if err != nil {
		return nil, fmt.Errorf("s3store: %w", err)
	}
	s := &Store{core: minio.Core{Client: client}, bucket: c.Bucket, part: cmp.Or(c.PartBytes, DefaultPartBytes)}
	if c.Prefix != "" {
		s.prefix = c.Prefix + "/"
	}
	return s, nil
}

// fail names the object in an error and says in this module's words that it is not there.
func (s *Store) fail(name string, err error) error {
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		err = fmt.Errorf("%w: %w", checkpoint.ErrNotFound, err)
	}
	return fmt.Errorf("s3store: %s/%s%s: %w", s.bucket, s.prefix, name, err)
}

// Read implements checkpoint.Storage. A connection that breaks is made anew for what is missing.
func (s *Store) Read(ctx context.Context, name string, offset int64, p []byte) error {
	if err := checkpoint.CheckObject(name); err != nil {
		return err
	}
	if len(p) == 0 {
		_, err := s.core.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
		if err != nil {
			return s.fail(name, err)
		}
		return nil
	}
	var err error
	for try := 0; try < attempts && ctx.Err() == nil; try++ {
		var n int
		n, err = s.readSome(ctx, name, offset, p)
		p, offset = p[n:], offset+int64(n)
		if len(p) == 0 {
			return nil
		}
		if _, broken := err.(brokenError); !broken {
			break
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return s.fail(name, err)
}

// brokenError is the end of an answer before its announced length: not the end of the object.
type brokenError struct{ text string }

func (e brokenError) Error() string { return "answer broke off: " + e.text }

// readSome makes one request. It returns how many bytes of p are good.
func (s *Store) readSome(ctx context.Context, name string, offset int64, p []byte) (int, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(offset, offset+int64(len(p))-1); err != nil {
		return 0, err
	}
	body, info, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+name, options)
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.InvalidRange {
			err = fmt.Errorf("%d bytes at %d: %w", len(p), offset, io.ErrUnexpectedEOF)
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			err = brokenError{err.Error()}
		}
		return 0, err
	}
	defer body.Close()
	want := min(int64(len(p)), info.Size)
	n, err := io.ReadFull(body, p[:want])
	switch {
	case err != nil:
		return n, brokenError{err.Error()}
	case n < len(p):
		return n, fmt.Errorf("%d bytes at %d: %w", len(p), offset, io.ErrUnexpectedEOF)
	}
	return n, nil
}

// List implements checkpoint.Storage. Unfinished uploads are listed with the bytes that they take up.
func (s *Store) List(ctx context.Context, prefix string) ([]checkpoint.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the lister after an error
	objects := []checkpoint.Object{}
	add := func(key, suffix string, size int64) {
		name := strings.TrimPrefix(key, s.prefix)
		if checkpoint.CheckObject(name) == nil {
			objects = append(objects, checkpoint.Object{Name: name + suffix, Bytes: size})
		}
	}
	for o := range s.core.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, s.fail(prefix, o.Err)
		}
		add(o.Key, "", o.Size)
	}
	for u := range s.core.Client.ListIncompleteUploads(ctx, s.bucket, s.prefix+prefix, true) {
		if u.Err != nil {
			return nil, s.fail(prefix, u.Err)
		}
		add(u.Key, checkpoint.PartialSuffix, u.Size)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, s.fail(prefix, err)
	}
	slices.SortFunc(objects, func(a, b checkpoint.Object) int { return strings.Compare(a.Name, b.Name) })
	// Several unfinished uploads of one object are one row: Remove aborts them all.
	return slices.CompactFunc(objects, func(a, b checkpoint.Object) bool { return a.Name == b.Name }), nil
}

// Remove implements checkpoint.Storage.
func (s *Store) Remove(ctx context.Context, name string) error {
	object, partial := strings.CutSuffix(name, checkpoint.PartialSuffix)
	if err := checkpoint.CheckObject(object); err != nil {
		return err
	}
	var err error
	if partial {
		err = s.core.Client.RemoveIncompleteUpload(ctx, s.bucket, s.prefix+object)
	} else {
		err = s.core.Client.RemoveObject(ctx, s.bucket, s.prefix+object, minio.RemoveObjectOptions{})
	}
	if code := minio.ToErrorResponse(err).Code; err != nil && code != minio.NoSuchKey && code != minio.NoSuchUpload {
		return s.fail(name, err)
	}
	return nil
}
