package dial

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// clientCert is a client certificate that is read again when its files change,
// so that it can be renewed under a running process. A new version that cannot
// be used is reported once, and the old one stays.
type clientCert struct {
	certFile, keyFile string
	warn              func(error)
	stats             *counters

	now      atomic.Pointer[loadedCert] // in use; never nil
	checking sync.Mutex                 // guards seen
	seen     [2]fileVersion             // of the files, when they were last read
}

// loadedCert is one version of a certificate; it is never changed.
type loadedCert struct {
	cert       tls.Certificate
	generation int // counts the versions
}

// fileVersion tells one content of a file from another. The size is part of it
// since a file may be looked at while it is being written.
type fileVersion struct {
	modified int64 // nanoseconds since 1970
	size     int64
}

func newClientCert(certFile, keyFile string, warn func(error), stats *counters) (*clientCert, error) {
	c := &clientCert{certFile: certFile, keyFile: keyFile, warn: warn, stats: stats}
	var err error
	if c.seen, err = c.versions(); err != nil {
		return nil, err
	}
	cert, err := c.read()
	if err != nil {
		return nil, err
	}
	c.now.Store(&loadedCert{cert: cert})
	return c, nil
}

// load returns the certificate to use now, after a look at the files. While
// another goroutine looks, it returns the one in use.
func (c *clientCert) load() *loadedCert {
	if c.checking.TryLock() {
		defer c.checking.Unlock()
		c.reloadLocked()
	}
	return c.now.Load()
}

func (c *clientCert) reloadLocked() {
	versions, err := c.versions()
	if err == nil && versions == c.seen {
		return
	}
	failedAgain := err != nil && c.seen == [2]fileVersion{}
	c.seen = versions // looked at before they are read: a change after that is found next time
	var cert tls.Certificate
	if err == nil {
		cert, err = c.read()
	}
	switch {
	case failedAgain:
	case err != nil:
		c.stats.certsBroken.Add(1)
		c.warn(fmt.Errorf("%w; the client certificate read before stays in use", err))
	default:
		c.stats.certsReloaded.Add(1)
		c.now.Store(&loadedCert{cert: cert, generation: c.now.Load().generation + 1})
	}
}

// versions returns those of both files, and the zero value with an error.
func (c *clientCert) versions() (v [2]fileVersion, err error) {
	for i, file := range []struct{ key, path string }{{"tls.cert_file", c.certFile}, {"tls.key_file", c.keyFile}} {
		info, err := os.Stat(file.path)
		if err != nil {
			return [2]fileVersion{}, fmt.Errorf("%s: %w", file.key, err)
		}
		v[i] = fileVersion{info.ModTime().UnixNano(), info.Size()}
	}
	return v, nil
}

func (c *clientCert) read() (tls.Certificate, error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.cert_file: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.key_file: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.cert_file %s with tls.key_file %s: %w", c.certFile, c.keyFile, err)
	}
	return pair, nil
}
