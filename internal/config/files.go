package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	maxPEMBytes   = 1 << 20
	maxTokenBytes = 4096
)

// readFile reads a file that the configuration names. Only a regular file of at
// most limit bytes is read: a pipe or a device could hold the start up for good.
func readFile(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, errors.New("cannot be read: " + reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("must be a regular file")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, errors.New("cannot be read: " + reason(err))
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, errors.New("cannot be read: " + reason(err))
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("must not be larger than %d bytes", limit)
	}
	return data, nil
}

// reason is an error of the file system without the path, which its message has
// already.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

// readToken reads a bearer token, without the newline at its end.
func readToken(name, path string, r *report) Secret {
	data, err := readFile(name, maxTokenBytes)
	if err != nil {
		r.add(path, name, err.Error())
		return Secret{}
	}
	token := strings.TrimRight(string(data), "\r\n")
	if token == "" {
		r.add(path, name, "the file must hold a token")
		return Secret{}
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f {
			r.add(path, name, "the token in the file must be one line of printable ASCII without spaces")
			return Secret{}
		}
	}
	return NewSecret(token)
}

// checkTLSFiles reads the files as dialling will, so that what is wrong with
// them shows at the start and not at the first connection.
func checkTLSFiles(t *ClientTLS, path string, r *report) {
	if t.CAFile != "" {
		p := join(path, "ca_file")
		if data, err := readFile(t.CAFile, maxPEMBytes); err != nil {
			r.add(p, t.CAFile, err.Error())
		} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
			r.add(p, t.CAFile, "must hold a certificate in PEM")
		}
	}
	certPath, keyPath := join(path, "cert_file"), join(path, "key_file")
	switch {
	case t.CertFile == "" && t.KeyFile == "":
		return
	case t.CertFile == "":
		r.add(keyPath, t.KeyFile, "needs cert_file beside it")
		return
	case t.KeyFile == "":
		r.add(certPath, t.CertFile, "needs key_file beside it")
		return
	}
	cert, certErr := readFile(t.CertFile, maxPEMBytes)
	if certErr != nil {
		r.add(certPath, t.CertFile, certErr.Error())
	}
	key, keyErr := readFile(t.KeyFile, maxPEMBytes)
	if keyErr != nil {
		r.add(keyPath, t.KeyFile, keyErr.Error())
	}
	if certErr == nil && keyErr == nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			r.add(certPath, t.CertFile, "does not go with key_file: "+err.Error(), keyPath)
		}
	}
}
