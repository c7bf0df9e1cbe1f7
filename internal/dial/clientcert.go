package dial

import (
	"crypto/tls"
	"errors"
	"fmt"

	"adbuffer/internal/configfile"
)

// clientCert is the certificate that adbuffer shows, read again when its files
// change. It warns once of a version that is not valid, and the one before stays.
type clientCert struct {
	keeper *configfile.Keeper
	warn   func(error)
	stats  *counters
}

func newClientCert(certFile, keyFile string, warn func(error), stats *counters) (*clientCert, error) {
	keeper, err := configfile.Keep(configfile.TLSFiles{Cert: certFile, Key: keyFile})
	if err != nil {
		return nil, withSetting(err)
	}
	return &clientCert{keeper: keeper, warn: warn, stats: stats}, nil
}

// load returns the certificate to use now, and a digest that differs between its versions.
func (c *clientCert) load() (cert *tls.Certificate, version [32]byte) {
	switch changed, err := c.keeper.Check(); {
	case err != nil:
		c.stats.certsBroken.Add(1)
		c.warn(fmt.Errorf("%w; the client certificate before stays in use", withSetting(err)))
	case changed:
		c.stats.certsReloaded.Add(1)
	}
	m := c.keeper.Current()
	return m.Certificate, m.Digest
}

// withSetting is an error about a file that names its setting too.
func withSetting(err error) error {
	if e := new(configfile.Error); errors.As(err, &e) {
		return fmt.Errorf("tls.%s: %w", e.Key, err)
	}
	return err
}
