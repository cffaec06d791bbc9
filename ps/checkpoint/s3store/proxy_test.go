package s3store_test

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint/s3store"
	"github.com/stretchr/testify/require"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// throughProxy opens the store with all requests going through handler, under the server's own name,
// which they are signed for.
func throughProxy(t *testing.T, c s3store.Config, handler http.Handler) *s3store.Store {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = discardLog()
	server.Start()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	c.Endpoint = "127.0.0.1:" + port
	s, err := s3store.New(c)
	require.NoError(t, err)
	return s
}
