// Package archtest checks the architecture: which package may import which.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// layers are the packages from top to bottom; ARCHITECTURE.md shows them. A package may import only
// packages below it. So each package can be understood without the ones above it.
var layers = []string{
	"adbuffer/cmd/adbuffer", "adbuffer/internal/app/demo", "adbuffer/internal/operate/probe", "adbuffer/internal/test/e2e", "adbuffer/internal/test/sspsim", "adbuffer/internal/app/app", "adbuffer/internal/operate/adminview", "adbuffer/internal/operate/advice", "adbuffer/internal/setup/reload", "adbuffer/internal/setup/config", "adbuffer/internal/operate/admin", "adbuffer/internal/request/proxy",
	"adbuffer/internal/request/route", "adbuffer/internal/ssp/ssp", "adbuffer/internal/ssp/fleet", "adbuffer/internal/ssp/pool", "adbuffer/internal/ssp/balancer", "adbuffer/internal/ssp/dial", "adbuffer/internal/ssp/http1",
	"adbuffer/internal/ssp/http2", "adbuffer/internal/client/http1", "adbuffer/internal/client/http2", "adbuffer/internal/wire/http2codec", "adbuffer/internal/client/listen", "adbuffer/internal/wire/logs", "adbuffer/internal/machine/configfile", "adbuffer/internal/wire/openrtb", "adbuffer/internal/wire/cpushare", "adbuffer/internal/wire/fairqueue", "adbuffer/internal/wire/handshake", "adbuffer/internal/wire/socket", "adbuffer/internal/wire/tracing", "adbuffer/internal/machine/metrics", "adbuffer/internal/wire/exchange", "adbuffer/internal/wire/header", "adbuffer/internal/wire/syntax",
	"adbuffer/internal/ssp/sizer", "adbuffer/internal/machine/rates", "adbuffer/internal/machine/capacity", "adbuffer/internal/machine/overload", "adbuffer/internal/machine/lag", "adbuffer/internal/machine/alarm", "adbuffer/internal/machine/cgroup", "adbuffer/internal/test/testsupport/boottest", "adbuffer/internal/test/testsupport",
}

// traffic are the packages on the path of requests.
var traffic = layers[slices.Index(layers, "adbuffer/internal/request/proxy"):slices.Index(layers, "adbuffer/internal/test/testsupport/boottest")]

// restricted are packages that only a few packages may import, of all or of those on the path of requests.
// adbuffer's own code serves and forwards requests. net/http is only for the admin listener and its clients.
// x/net/http2 is only for the names and tables of HTTP/2's codec.
var restricted = []struct {
	imported  string
	onTraffic bool
	users     []string
}{
	{"github.com/spf13/viper", false, []string{"adbuffer/internal/setup/config"}},
	{"github.com/valyala/fasthttp", false, []string{"adbuffer/internal/client/http1"}},
	{"net/http", true, []string{"adbuffer/internal/machine/metrics", "adbuffer/internal/wire/tracing"}}, // the handler of /metrics; the exporter of spans follows no redirect
	{"golang.org/x/net/http2", true, []string{"adbuffer/internal/ssp/http2", "adbuffer/internal/client/http2", "adbuffer/internal/wire/http2codec"}},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-pgo=off", "-json=ImportPath,Imports", "adbuffer/cmd/...", "adbuffer/internal/...")
	out, err := cmd.Output()
	testsupport.MustTrue(t, err == nil, "go list: %v", err)
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestArrowsPointDown(t *testing.T) {
	for _, p := range listPackages(t) {
		if p.ImportPath == "adbuffer/internal/test/archtest" || strings.HasPrefix(p.ImportPath, "adbuffer/internal/test/e2e/") { // only for tests
			continue
		}
		from := slices.Index(layers, p.ImportPath)
		if from < 0 {
			t.Errorf("%s is not among the layers: add it here and to ARCHITECTURE.md", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, "adbuffer/") {
				continue
			}
			if to := slices.Index(layers, imported); to <= from {
				t.Errorf("%s imports %s, which is above it: a reader of the lower package would have to know the upper one", p.ImportPath, imported)
			}
		}
	}
}

func TestOnlyAFewPackagesImportRestrictedOnes(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, r := range restricted {
			if r.onTraffic && !slices.Contains(traffic, p.ImportPath) || slices.Contains(r.users, p.ImportPath) {
				continue
			}
			testsupport.True(t, !slices.Contains(p.Imports, r.imported), "%s imports %s; only %v may", p.ImportPath, r.imported, r.users)
		}
	}
}
