package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/wire/handshake"
)

const maxTokenBytes = 4096

// Files returns the files that the config names, sorted: certificates, private keys, authorities,
// tokens and passwords. They are the values of the keys whose names end in _file.
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

// readToken reads a bearer token or a password, without the newline at its end.
func readToken(name, path string, r *report) Secret {
	data, err := configfile.Read(name, maxTokenBytes)
	token := strings.TrimRight(string(data), "\r\n")
	var rule string
	switch e, _ := errors.AsType[*configfile.Error](err); {
	case e != nil:
		rule = e.Rule
	case token == "":
		rule = "the file must hold a token"
	case !isGraphic(token):
		rule = "the token in the file must be one line of printable ASCII without spaces"
	default:
		return newSecret(token)
	}
	r.add(path, name, rule)
	return Secret{}
}

// check reads the TLS files, so that an invalid file is an error at start, not at the first connection.
func (t *ClientTLS) check(path string, r *report) {
	checkTLSFiles(configfile.TLSFiles{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}, path, join(path, "ca_file"), r)
}

func (t *SSPTLS) check(path string, r *report) {
	t.ClientTLS.check(path, r)
	t.TLSPolicy.check(path, r)
}

// check reports groups that no permitted TLS version could use.
func (p *TLSPolicy) check(path string, r *report) {
	if all := p.Groups; len(all) > 0 && p.MinVersion == TLS12 && !slices.ContainsFunc(all, func(g TLSGroup) bool { return !handshake.IsHybrid(string(g)) }) {
		r.add(join(path, "groups"), all, `must name a group that TLS 1.2 has, such as x25519, or min_version must be "1.3"`, join(path, "min_version"))
	}
}

// checkServerTLS reads the files of both listeners.
func checkServerTLS(cfg *Config, r *report) {
	server, admin := &cfg.Server.TLS, &cfg.Admin
	server.TLSPolicy.check("server.tls", r)
	for _, l := range []struct {
		files        configfile.TLSFiles
		path, caPath string
	}{
		{configfile.TLSFiles{Cert: server.CertFile, Key: server.KeyFile, CA: server.ClientCAFile}, "server.tls", "server.tls.client_ca_file"},
		{configfile.TLSFiles{Cert: admin.TLS.CertFile, Key: admin.TLS.KeyFile, CA: admin.ClientCAFile}, "admin.tls", "admin.client_ca_file"},
	} {
		certPath := join(l.path, "cert_file")
		if l.files.CA != "" && l.files.Cert == "" {
			r.add(l.caPath, l.files.CA, "needs "+certPath+": without TLS, clients present no certificate", certPath)
		}
		checkTLSFiles(l.files, l.path, l.caPath, r)
	}
}

// checkTLSFiles reports the errors of files. path is the section that names the certificate and the key,
// caPath the setting that names the authorities.
func checkTLSFiles(files configfile.TLSFiles, path, caPath string, r *report) {
	certPath, keyPath := join(path, "cert_file"), join(path, "key_file")
	_, err := files.Load()
	joined, ok := err.(interface{ Unwrap() []error }) // Load joins its errors
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		switch e, _ := errors.AsType[*configfile.Error](err); e.Key {
		case "ca_file":
			r.add(caPath, e.File, e.Rule)
		case "key_file":
			r.add(keyPath, e.File, e.Rule)
		default:
			r.add(certPath, e.File, e.Rule, keyPath)
		}
	}
}
