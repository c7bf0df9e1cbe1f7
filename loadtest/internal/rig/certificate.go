package rig

import (
	"os"

	"adbuffer/internal/sspsim"
)

// Certificate holds the paths of a server certificate and its CA.
type Certificate struct {
	CA, Cert, Key string
	Both          string // path of a file with Cert and Key
	Authority     []byte // content of CA
}

// Certificate creates a CA and a server certificate for hosts.
func (r *Rig) Certificate(name string, hosts ...string) (Certificate, error) {
	at := r.Dir + "/" + name
	c := Certificate{CA: at + "-ca.pem", Cert: at + ".pem", Key: at + ".key", Both: at + "-both.pem"}
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
	var both []byte
	for _, file := range []string{c.Cert, c.Key} {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, err
		}
		both = append(both, text...)
	}
	if err := os.WriteFile(c.Both, both, 0o600); err != nil {
		return c, err
	}
	return c, ca.WriteFile(c.CA)
}
