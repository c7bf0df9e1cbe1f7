package proxy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// The detail of each error body is one sentence. It names an entry of the runbook.
func TestTheDetailOfEachOutcomeNamesItsRunbookEntry(t *testing.T) {
	runbook, err := os.ReadFile("../../../deploy/prometheus/RUNBOOK.md")
	testsupport.NoError(t, err)
	v := &configVersion{opts: Options{ErrorDetail: true}}
	n := 0
	for o := range exchange.Outcomes {
		if o.HasResponse() { // the SSP's own status
			continue
		}
		n++
		for _, detail := range []string{"", "4 of 4 places in use; see pool.max_conns"} {
			var w response
			v.writeOwn(&w, o, o.Row().Status, nil, "", detail)
			var body ownBody
			testsupport.NoError(t, json.Unmarshal(w.Body, &body))
			before, entry, named := strings.Cut(body.Detail, "see the runbook, entry ")
			testsupport.True(t, named && entry == o.String() && strings.Contains(string(runbook), "\n## "+entry+"\n") && (detail == "" || before == detail+"; "), "%v: detail %q", o, body.Detail)
		}
	}
	testsupport.AtLeast(t, n, 20, "%d outcomes have a response of ours")
}
