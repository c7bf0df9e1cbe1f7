package rig

import (
	"adbuffer/internal/sspsim"
)

// Certificate holds the paths of a server certificate and its CA.
type Certificate struct {
	CA, Cert  string
	Key       string // the name of Cert with .key behind it, where HAProxy looks for it
	Authority []byte // content of CA
}

// Certificate creates a CA and a server certificate for hosts.
func (r *Rig) Certificate(name string, hosts ...string) (Certificate, error) {
	at := r.Dir + "/" + name
	c := Certificate{CA: at + "-ca.pem", Cert: at + ".pem", Key: at + ".pem.key"}
	ca, err := sspsim.NewCA()
	if err != nil {
		return c, err
	}
	pair, err := ca.ServerCert(hosts...)
	if err != nil {
		return c, err
	}
	if err := sspsim.WriteKeyPair(pair, c.Cert, c.Key); err != nil {
		return c, err
	}
	c.Authority = ca.PEM()
	return c, ca.WriteFile(c.CA)
}
