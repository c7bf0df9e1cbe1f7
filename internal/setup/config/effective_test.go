package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func wantRoundTrip(t *testing.T, cfg *Config) {
	t.Helper()
	text := cfg.YAMLWithSecrets()
	again, _, err := Parse(text, nil)
	testsupport.MustTrue(t, err == nil, "the effective config does not load:\n%v\n%s", err, text)
	testsupport.MustEqual(t, cmp.Diff(cfg, again, compareUnexported), "", "the effective config loads to another (-first +again):\n%s")
	testsupport.MustEqual(t, cfg.Hash(), again.Hash(), "equal configs have different hashes: %v")
}

func TestEffectiveConfigLoadsToAnEqualConfig(t *testing.T) {
	wantRoundTrip(t, mustLoad(t, filepath.Join(configDir, "reference.yaml")))
	wantRoundTrip(t, mustLoad(t, filepath.Join(configDir, "minimal.yaml")))
	wantRoundTrip(t, mustParse(t, `
server: {listen: "unix:/run/a b.sock", socket_mode: "0600", trusted_proxies: [], idle_timeout: 1h0m0.5s}
ssps:
  - name: "null"
    endpoints: ["http://[::1]:9000/?a=%20:"]
    headers: {set: [{name: "0x1F", value: "a: b # c"}, {name: "True", value: "*x\ty é"}]}
    qps: {limit: 0.3333333333333333}
  - {name: "1e3", endpoints: ["http://127.0.0.1:9000"]}
routes:
  - {name: "2001-01-01", match: {path: "/*", query: [{name: "~", value: ""}]}, mode: split, ssps: [{name: "null", weight: 0}, "1e3"]}
`))
}

func TestHashIdentifiesConfigsAndStaysTheSame(t *testing.T) {
	first := mustParse(t, twoSSPs)
	got := first.Hash()
	testsupport.True(t, len(got) == 12 && strings.Trim(got, "0123456789abcdef") == "" && got == mustParse(t, twoSSPs).Hash(), "hash %q", got)
	other := mustParseEnv(t, twoSSPs, map[string]string{"ADBUFFER_SERVER_MAX_IN_FLIGHT": "7"})
	testsupport.True(t, first.Hash() != other.Hash(), "different configs have the same hash")
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	const secret = "hunter2hunter2"
	file := filepath.Join(t.TempDir(), "token")
	testsupport.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	cfg := mustParseEnv(t, twoSSPs, map[string]string{"ADBUFFER_ADMIN_TOKEN_FILE": file})
	token := cfg.Admin.Token
	testsupport.MustTrue(t, token.Reveal() == secret && !token.Empty(), "the file's token was not read")
	hiddenField := struct {
		token Secret
		list  []Secret
	}{token, []Secret{token}}
	var printed bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&printed, verb+verb+verb+verb+"\n", token, &token, *cfg, hiddenField)
	}
	for _, v := range []any{token, cfg, map[string]any{"token": token}} {
		asJSON, err := json.Marshal(v)
		testsupport.NoError(t, err)
		asYAML, err := yaml.Marshal(v)
		testsupport.NoError(t, err)
		printed.Write(asJSON)
		printed.Write(asYAML)
	}
	printed.Write(cfg.YAML())
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), secret[:7]} {
		testsupport.True(t, !strings.Contains(printed.String(), form), "%q was printed:\n%s", form, printed.String())
	}
	testsupport.True(t, strings.Contains(printed.String(), Hidden) && (Secret{}).String() == "", "the output must show whether there is a secret")
}
