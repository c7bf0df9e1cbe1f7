package rig

import (
	"adbuffer/internal/test/sspsim"
)

// Certificate holds the paths of a server certificate and its CA.
type Certificate struct {
	CA, Cert  string
	Key       string // the path of Cert followed by .key, where HAProxy looks for it
	Authority []byte // content of CA
}

// Certificate creates a CA and a server certificate for hosts.
func (r *Rig) Certificate(name string, hosts ...string) *Certificate {
	at := r.Dir + "/" + name
	c := &Certificate{CA: at + "-ca.pem", Cert: at + ".pem", Key: at + ".pem.key"}
	ca := Must(sspsim.NewCA())(r)
	r.Check(sspsim.WriteKeyPair(Must(ca.ServerCert(hosts...))(r), c.Cert, c.Key))
	r.Check(ca.WriteFile(c.CA))
	c.Authority = ca.PEM()
	return c
}
