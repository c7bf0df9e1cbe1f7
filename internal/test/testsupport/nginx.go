package testsupport

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StartNginx runs Debian's nginx, one process that listens on addr, with these directives in its http block. It keeps its
// files in dir. A relative path in the directives is one in dir.
func StartNginx(t testing.TB, dir, addr, http string) *Daemon {
	t.Helper()
	config := "daemon off; master_process off; error_log stderr; pid pid; events { worker_connections 2048; }\nhttp {\n"
	for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += fmt.Sprintf("%s_temp_path %s;\n", module, module)
	}
	file := filepath.Join(dir, "nginx.conf")
	NoError(t, os.WriteFile(file, []byte(config+"default_type application/json;\n"+http+"\n}\n"), 0o600))
	return StartDaemon(t, "tcp", addr, exec.Command(Needs(t, "nginx-light", "/usr/sbin/nginx"), "-p", dir, "-c", file, "-e", "stderr"))
}
