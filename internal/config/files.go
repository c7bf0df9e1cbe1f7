package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
)

const (
	maxPEMBytes   = 1 << 20
	maxTokenBytes = 4096
)

// Files returns the files that the config names, sorted: certificates, keys,
// authorities, tokens. The keys of all of them end in _file.
func (c *Config) Files() []string {
	files := appendFiles(nil, reflect.ValueOf(c).Elem())
	slices.Sort(files)
	return slices.Compact(files)
}

func appendFiles(files []string, v reflect.Value) []string {
	if isList(v.Type()) && isSection(v.Type().Elem()) {
		for i := range v.Len() {
			files = appendFiles(files, v.Index(i))
		}
	}
	if !isSection(v.Type()) {
		return files
	}
	for _, k := range keysOf(v.Type()) {
		value := v.FieldByIndex(k.index)
		if strings.HasSuffix(k.name, "_file") && value.String() != "" {
			files = append(files, value.String())
		}
		files = appendFiles(files, value)
	}
	return files
}

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
	checkCAFile(t.CAFile, join(path, "ca_file"), r)
	checkCertificate(t.CertFile, t.KeyFile, path, r)
}

// checkServerTLS does so for both listeners.
func checkServerTLS(cfg *Config, r *report) {
	for _, l := range []struct {
		certFile, keyFile, path, caFile, caPath string
	}{
		{cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile, "server.tls", cfg.Server.TLS.ClientCAFile, "server.tls.client_ca_file"},
		{cfg.Admin.TLS.CertFile, cfg.Admin.TLS.KeyFile, "admin.tls", cfg.Admin.ClientCAFile, "admin.client_ca_file"},
	} {
		checkCertificate(l.certFile, l.keyFile, l.path, r)
		if l.caFile != "" && l.certFile == "" {
			r.add(l.caPath, l.caFile, "needs "+join(l.path, "cert_file")+": without TLS no client shows a certificate", join(l.path, "cert_file"))
			continue
		}
		checkCAFile(l.caFile, l.caPath, r)
	}
}

// checkCAFile looks for an authority's certificate in the file, if there is one.
func checkCAFile(name, path string, r *report) {
	if name == "" {
		return
	}
	if data, err := readFile(name, maxPEMBytes); err != nil {
		r.add(path, name, err.Error())
	} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
		r.add(path, name, "must hold a certificate in PEM")
	}
}

// checkCertificate looks whether a certificate and a key go together, if there
// are any.
func checkCertificate(certFile, keyFile, path string, r *report) {
	certPath, keyPath := join(path, "cert_file"), join(path, "key_file")
	switch {
	case certFile == "" && keyFile == "":
		return
	case certFile == "":
		r.add(keyPath, keyFile, "needs cert_file beside it")
		return
	case keyFile == "":
		r.add(certPath, certFile, "needs key_file beside it")
		return
	}
	cert, certErr := readFile(certFile, maxPEMBytes)
	if certErr != nil {
		r.add(certPath, certFile, certErr.Error())
	}
	key, keyErr := readFile(keyFile, maxPEMBytes)
	if keyErr != nil {
		r.add(keyPath, keyFile, keyErr.Error())
	}
	if certErr == nil && keyErr == nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			r.add(certPath, certFile, "does not go with key_file: "+err.Error(), keyPath)
		}
	}
}
