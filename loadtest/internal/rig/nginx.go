package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
)

// StartNginx starts a real nginx of one worker, whose files are in the
// directory, and waits until it takes connections on addr. http is what stands
// in the http block. The error is ErrMissing if it is not installed.
func (r *Rig) StartNginx(ctx context.Context, name, cores, http, addr string) (*Process, error) {
	exe, err := findNginx()
	if err != nil {
		return nil, err
	}
	// The worker may be another user, and has its temporary files there.
	if err := os.Chmod(r.Dir, 0o755); err != nil {
		return nil, err
	}
	conf := &strings.Builder{}
	fmt.Fprintf(conf, "worker_processes 1; daemon off; pid %[1]s/%[2]s.pid; error_log %[1]s/%[2]s.err; worker_rlimit_nofile 65536;\n", r.Dir, name)
	conf.WriteString("events { worker_connections 20000; }\nhttp {\n")
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(conf, " %s_temp_path %s/%s_%s;\n", kind, r.Dir, name, kind)
	}
	fmt.Fprintf(conf, "%s\n}\n", http)
	file, err := r.Write(name+".conf", conf.String())
	if err != nil {
		return nil, err
	}
	p, err := r.Start(Command{Name: name, Argv: []string{exe, "-c", file, "-e", r.Dir + "/" + name + ".err"}, Cores: cores})
	if err != nil {
		return nil, err
	}
	return p, p.AwaitPort(ctx, addr, 20*time.Second)
}

// findNginx returns nginx's path. Debian puts it where users do not look.
func findNginx() (string, error) {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path, nil
	}
	return Find("/usr/sbin/nginx")
}

// Certificate is the files of a server's certificate.
type Certificate struct{ CA, Cert, Key string }

// Certificate makes a certificate for hosts, of an authority of its own.
func (r *Rig) Certificate(name string, hosts ...string) (Certificate, error) {
	c := Certificate{r.Dir + "/" + name + "-ca.pem", r.Dir + "/" + name + ".pem", r.Dir + "/" + name + ".key"}
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
	return c, ca.WriteFile(c.CA)
}
