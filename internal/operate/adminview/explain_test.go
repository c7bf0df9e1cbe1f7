package adminview

import (
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tcf"
)

func TestExplainSaysWhyASpareIsNotUsed(t *testing.T) {
	text := func(list string) string {
		return "ssps: [{name: a, endpoints: [" + list + "]}]\nroutes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]\n"
	}
	for _, row := range []struct {
		endpoints string
		want      []string
	}{
		{`"http://127.0.0.1:1/"`, nil},
		{`"http://127.0.0.1:1/", "http://127.0.0.1:2/", {url: "http://127.0.0.1:3/", priority: 2}`,
			[]string{"127.0.0.1:3 has priority 2, and gets requests once no endpoint of priority 0 works; now 2 of 2 work"}},
	} {
		versions := versionsOf(t, text(row.endpoints))
		if got := sparesOf(versions.Current().SSPs[0]); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", row.endpoints, got, row.want)
		}
	}
	versions := versionsOf(t, text(`"http://127.0.0.1:1/", "http://127.0.0.1:2/", {url: "http://127.0.0.1:3/", priority: 1}`))
	s := versions.Current().SSPs[0]
	s.Pool().SetEndpointState("127.0.0.1:1", balancer.Disabled)
	if got := sparesOf(s); len(got) != 1 || !strings.HasSuffix(got[0], "; now 1 of 2 work") {
		t.Errorf("one of two is disabled: %q", got)
	}
}

func TestExplainNamesTheSettingsThatTheMachineLowers(t *testing.T) {
	cfg := parse(t, "ssps: [{name: a, endpoints: [\"http://127.0.0.1:1/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n")
	cfg.Machine = config.Machine{}
	if got := lowered(cfg); len(got) != 0 {
		t.Errorf("a machine without limits lowers %q", got)
	}
	cfg.Machine = config.Machine{OpenFiles: 512, Memory: 256 << 20, MemoryFrom: "that the cgroup allows"}
	got := lowered(cfg)
	want := []string{
		"server.max_connections is 192, lowered from 65536: the process may open 512 files (ulimit -n)",
		"server.max_buffered_bytes is 67108864, lowered from 268435456: a quarter of the 268435456 bytes of memory that the cgroup allows",
	}
	testsupport.True(t, slices.Equal(got, want), "%q, want %q", got, want)
	if text := (&Explained{Machine: got, SSPs: []explainedSSP{{SSP: "a", Spares: []string{"b:1 waits"}}}}).String(); !strings.Contains(text, "machine   server.max_connections is 192") || !strings.Contains(text, "spare     b:1 waits") {
		t.Error(text)
	}
}

func TestExplainSaysWhereTheDeadlineComesFrom(t *testing.T) {
	x := &Explained{BudgetMs: 295, BudgetFrom: "deadline.default", TmaxIgnored: "the body is protobuf", SSPs: []explainedSSP{
		{SSP: "a", BudgetMs: 120, BudgetFrom: "routes[].ssps[].timeout"}, {SSP: "b"},
	}}
	const want = `deadline  295 ms from deadline.default, less deadline.reserve
          tmax is ignored: the body is protobuf

ssp       a
deadline  120 ms from routes[].ssps[].timeout
limits    
request   none: 

ssp       b
limits    
request   none: 
`
	testsupport.Equal(t, x.String(), want, "%s")
}

func TestExplainSaysWhatAVendorLacks(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	vendor := tcf.Requirement{Vendor: 76}
	conditions := []config.BodyCondition{
		{TCF: &config.TCF{Requirement: vendor}},
		{Path: "id", Exists: &yes},
		{TCF: &config.TCF{Requirement: tcf.Requirement{Vendor: 76, Purposes: []int{1, 2}, LegitimateInterests: []int{10}}, Allowed: &yes}},
		{TCF: &config.TCF{Requirement: vendor, Allowed: &no}},
	}
	// Vendors 12 and 76 have consent for purposes 1, 2 and 7; the publisher forbids purpose 2 to vendor 76.
	consent := tcf.New(true, []byte("CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAmQAgAGABMAEyAEAAwAJgAIQACAEwAAA"))
	const denied = "tcf must not allow vendor 76, but the vendor may process the request "
	const all = "tcf must allow vendor 76, purposes [1 2] with consent, purposes [10] with legitimate interest, but "
	for _, tt := range []struct {
		e    proxy.Explanation
		want []string
	}{
		{proxy.Explanation{Consent: consent, Body: []byte(`{}`)}, []string{"id must exist, but it is missing", all + "a publisher restriction forbids purpose 2", denied + "(allowed)"}},
		{proxy.Explanation{Consent: consent, Unreadable: openrtb.NotObject}, []string{all + "a publisher restriction forbids purpose 2", denied + "(allowed)", "the body matches no condition, since it is not a JSON object (not_object)"}},
		{proxy.Explanation{Consent: tcf.New(false, nil), Body: []byte(`{"id":1}`)}, []string{denied + "(not_applicable)"}},
		{proxy.Explanation{Consent: tcf.OfUnreadable(), Unreadable: openrtb.Encoding}, []string{
			"tcf must allow vendor 76, but the request has no readable TCF 2 consent string for vendor 76", all + "the request has no readable TCF 2 consent string for vendor 76",
			"the body matches no condition, since it is compressed (encoding)",
		}},
	} {
		got := failed(conditions, &tt.e)
		testsupport.True(t, slices.Equal(got, tt.want), "%q, want %q", got, tt.want)
	}
}
