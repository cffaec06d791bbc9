package s3store_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/ps/checkpoint/s3store"
	"github.com/elasticps/elasticps/ps/checkpoint/storagetest"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"
)

// serverVariable names the environment variable with the URL of a bucket for the tests, such as
// http://key:secret@127.0.0.1:7070/bucket. .ci/run starts a server and sets it.
const serverVariable = "ELASTICPS_S3"

// config is that of a place of its own in the bucket, which is empty.
func config(t *testing.T) s3store.Config {
	t.Helper()
	text := os.Getenv(serverVariable)
	if text == "" {
		t.Skipf("no S3 server: %s is not set", serverVariable)
	}
	u, err := url.Parse(text)
	require.NoError(t, err)
	secret, _ := u.User.Password()
	return s3store.Config{
		Endpoint: u.Host, Insecure: u.Scheme == "http", Region: "us-east-1", Bucket: strings.Trim(u.Path, "/"),
		Prefix:    fmt.Sprintf("test/%016x", rand.Uint64()),
		AccessKey: u.User.Username(), SecretKey: secret, PartBytes: s3store.MinPartBytes,
	}
}

func open(t *testing.T, c s3store.Config) *s3store.Store {
	t.Helper()
	s, err := s3store.New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		objects, err := s.List(ctx, "")
		require.NoError(t, err)
		for _, o := range objects {
			require.NoError(t, s.Remove(ctx, o.Name))
		}
	})
	return s
}

func TestS3(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) checkpoint.Storage { return open(t, config(t)) })
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		config s3store.Config
		want   []string
	}{
		"nothing":  {s3store.Config{}, []string{"Endpoint is empty", "Bucket is empty"}},
		"half key": {s3store.Config{Endpoint: "e", Bucket: "b", AccessKey: "k"}, []string{"one is empty"}},
		"prefix":   {s3store.Config{Endpoint: "e", Bucket: "b", Prefix: "a/../b"}, []string{"Prefix"}},
		"part":     {s3store.Config{Endpoint: "e", Bucket: "b", PartBytes: 5<<20 - 1}, []string{"PartBytes is 5242879, must be 0 or 5242880"}},
		"endpoint": {s3store.Config{Endpoint: "http://e/x", Bucket: "b"}, []string{"s3store: "}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s3store.New(c.config)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestAbandonedUpload lists and removes what a process leaves behind that dies in a Put.
func TestAbandonedUpload(t *testing.T) {
	c := config(t)
	s := open(t, c)
	client, err := minio.NewCore(c.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""), Secure: !c.Insecure})
	require.NoError(t, err)
	for range 2 {
		id, err := client.NewMultipartUpload(t.Context(), c.Bucket, c.Prefix+"/ckpt-00000001/0.safetensors", minio.PutObjectOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, id)
	}
	objects, err := s.List(t.Context(), "ckpt-")
	require.NoError(t, err)
	require.Len(t, objects, 1)
	require.Equal(t, "ckpt-00000001/0.safetensors"+checkpoint.PartialSuffix, objects[0].Name)
	require.NoError(t, s.Remove(t.Context(), objects[0].Name))
	objects, err = s.List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, objects)
}

// TestUploadMemory uploads 200 MiB in 40 parts: two buffers for parts, and what the requests take, which
// is garbage afterwards and counts here as well.
func TestUploadMemory(t *testing.T) {
	s := open(t, config(t))
	piece := make([]byte, 1<<20)
	const pieces = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, s.Put(t.Context(), "large", pieces<<20, func(w io.Writer) error {
		for range pieces {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		return nil
	}))
	runtime.ReadMemStats(&after)
	taken := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d MiB taken for %d", taken, pieces)
	require.Less(t, taken, uint64(pieces/3))
	objects, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []checkpoint.Object{{Name: "large", Bytes: pieces << 20}}, objects)
}

// TestNoGoroutineIsLeft fails large Puts in every way: no part is on its way when Put has returned.
func TestNoGoroutineIsLeft(t *testing.T) {
	s := open(t, config(t))
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Put(ctx, "a", 6*s3store.MinPartBytes, func(w io.Writer) error {
			_, err := w.Write(make([]byte, s3store.MinPartBytes*(i%6)+1))
			if i%2 == 0 {
				cancel()
				return err
			}
			return io.ErrClosedPipe
		})
		cancel()
		require.Error(t, err)
		var stacks bytes.Buffer
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 2))
		require.NotContains(t, stacks.String(), "s3store.(*upload)")
	}
	objects, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, objects)
}

// TestNoBucket asks for a bucket that is not there, which must not look like an empty one: training
// would begin anew.
func TestNoBucket(t *testing.T) {
	c := config(t)
	c.Bucket += "-none"
	s, err := s3store.New(c)
	require.NoError(t, err)
	_, _, err = checkpoint.Latest(t.Context(), s, "")
	require.Error(t, err)
	require.NotErrorIs(t, err, checkpoint.ErrNotFound)
	require.NotErrorIs(t, s.Read(t.Context(), "a", 0, make([]byte, 1)), checkpoint.ErrNotFound)
	require.Error(t, s.Put(t.Context(), "a", 1, func(w io.Writer) error {
		_, err := w.Write([]byte{1})
		return err
	}))
}

// TestWrongKey is refused and does not look like an empty bucket.
func TestWrongKey(t *testing.T) {
	c := config(t)
	c.SecretKey += "x"
	s, err := s3store.New(c)
	require.NoError(t, err)
	_, _, err = checkpoint.Latest(t.Context(), s, "")
	require.Error(t, err)
	require.NotErrorIs(t, err, checkpoint.ErrNotFound)
}

// TestBrokenAnswers reads through a proxy that cuts the first answers short: the rest is asked for
// again, and if it never comes the object is not taken for a short one.
func TestBrokenAnswers(t *testing.T) {
	c := config(t)
	s := open(t, c)
	content := make([]byte, 100_000)
	for i := range content {
		content[i] = byte(i * 7)
	}
	require.NoError(t, s.Put(t.Context(), "a", int64(len(content)), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}))
	var cuts, length atomic.Int64
	target := &url.URL{Scheme: "http", Host: c.Endpoint}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodGet && cuts.Add(-1) >= 0 {
				r.Body = struct {
					io.Reader
					io.Closer
				}{io.LimitReader(r.Body, length.Load()), r.Body}
			}
			return nil
		},
		ErrorLog: discardLog(),
	}
	through := throughProxy(t, c, proxy)
	for _, n := range []int64{0, 100, 20_000} { // before the header leaves the proxy, and after
		length.Store(n)
		got := make([]byte, len(content))
		cuts.Store(2)
		require.NoError(t, through.Read(t.Context(), "a", 0, got))
		require.Equal(t, content, got)
		cuts.Store(1 << 40)
		err := through.Read(t.Context(), "a", 0, got)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.ErrUnexpectedEOF, "that would mean damage")
		require.NotErrorIs(t, err, checkpoint.ErrNotFound)
	}
}
