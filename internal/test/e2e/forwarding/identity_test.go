package forwarding

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
)

// claims are statements of a client, or of a proxy before adbuffer, about the client's identity.
var claims = []string{
	"X-Forwarded-For: 203.0.113.77, 198.51.100.9, 10.1.2.3",
	"X-Forwarded-Proto: https",
	"Forwarded: for=203.0.113.77;proto=https",
	"X-Real-IP: 203.0.113.77",
	"True-Client-IP: 203.0.113.77",
	"X-Device-IP: 203.0.113.77",
	"X-Device-User-Agent: TV/1.0",
	"X-Device-Accept-Language: de",
	"X_Forwarded_For: 203.0.113.66",
	"X_Device-IP: 203.0.113.66",
	"X_Real_IP: 203.0.113.66",
	"User-Agent: Player/2",
}

func TestIdentityFollowsTheSSPsSettingAndThePeersTrust(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	config := fmt.Sprintf(`
ssps:
  - {name: list, endpoints: [%[1]q]}
  - {name: device, endpoints: [%[1]q], identity: x_device}
  - {name: both, endpoints: [%[1]q], identity: both}
  - {name: none, endpoints: [%[1]q], identity: none}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [list, device, both, none], client_choice: true}
  - {name: private, match: {path: /private}, ssps: [list, device, both, none], client_choice: true, privacy: truncate_ip}
`, s.URL())
	trusting := e2e.Start(t, "server: {trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]}\n"+config)
	believing := e2e.Start(t, "server: {trusted_proxies: []}\n"+config)
	forwarded := []string{"X-Forwarded-Proto: https", "Forwarded: for=203.0.113.77;proto=https", "X-Real-IP: 203.0.113.77", "True-Client-IP: 203.0.113.77"}
	short := []string{"X-Forwarded-Proto: https", "Forwarded: for=203.0.113.0;proto=https", "X-Real-IP: 203.0.113.0", "True-Client-IP: 203.0.113.0"}
	list := "X-Forwarded-For: 203.0.113.77, 198.51.100.9, 10.1.2.3"
	shortList := "X-Forwarded-For: 203.0.113.0, 198.51.100.0, 10.1.2.0"
	device := []string{"X-Device-Accept-Language: de", "X-Device-IP: 203.0.113.77", "X-Device-User-Agent: TV/1.0"}
	shortDevice := []string{"X-Device-Accept-Language: de", "X-Device-IP: 203.0.113.0", "X-Device-User-Agent: TV/1.0"}
	for _, row := range []struct {
		name string
		ab   *e2e.Process
		path string
		want []string
	}{
		{"x_forwarded_for", trusting, "/fillbuffer/list", slices.Concat(forwarded, []string{list})},
		{"x_device", trusting, "/fillbuffer/device", device},
		{"both", trusting, "/fillbuffer/both", slices.Concat(forwarded, []string{list}, device)},
		{"none", trusting, "/fillbuffer/none", nil},
		{"truncate_ip, x_forwarded_for", trusting, "/private/list", slices.Concat(short, []string{shortList})},
		{"truncate_ip, x_device", trusting, "/private/device", shortDevice},
		{"truncate_ip, both", trusting, "/private/both", slices.Concat(short, []string{shortList}, shortDevice)},
		{"truncate_ip, none", trusting, "/private/none", nil},
		// Identity fields of an untrusted peer are ignored. The peer here is on loopback, and
		// loopback addresses are not sent.
		{"untrusted, x_forwarded_for", believing, "/fillbuffer/list", nil},
		{"untrusted, x_device", believing, "/fillbuffer/device", []string{"X-Device-User-Agent: Player/2"}},
		{"untrusted, none", believing, "/fillbuffer/none", nil},
	} {
		row.ab.Get(row.path, claims...).WantStatus(row.name, 200)
		got := e2e.IdentityFields(e2e.LastRequest(t, s))
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(row.want)); !slices.Equal(got, want) {
			t.Errorf("%s: the SSP received\n%s\nwant\n%s", row.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// Without X-Device-IP the device is the client: the first address behind the trusted hops.
	trusting.Get("/fillbuffer/device", "X-Forwarded-For: 192.0.2.1, 198.51.100.9, 10.1.2.3").WantFill("device")
	if got := e2e.IdentityFields(e2e.LastRequest(t, s)); !slices.Equal(got, []string{"X-Device-IP: 198.51.100.9"}) {
		t.Errorf("the SSP received %q, want the first hop that is not trusted", got)
	}
	trusting.Get("/private/device", "X-Forwarded-For: 2001:db8:aaaa:bbcc:dd::1").WantFill("device")
	if got := e2e.IdentityFields(e2e.LastRequest(t, s)); !slices.Equal(got, []string{"X-Device-IP: 2001:db8:aaaa:bb00::"}) {
		t.Errorf("the SSP received %q, want a /56", got)
	}
}
