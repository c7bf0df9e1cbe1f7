package exchange

import (
	"fmt"
	"reflect"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestEachOutcomeHasAWholeRowOfItsOwn(t *testing.T) {
	names := make(map[string]bool)
	for o := range Outcomes {
		row := reflect.ValueOf(rows[o])
		for i := range row.NumField() {
			testsupport.True(t, !row.Field(i).IsZero(), "outcome %d (%v) has no %s", o, o, row.Type().Field(i).Name)
		}
		testsupport.True(t, !names[o.String()] && IsOutcome(o.String()), "outcome %d: the name %q is not its own", o, o)
		names[o.String()] = true
		testsupport.True(t, o.HasResponse() == (o <= Unreadable), "%v has the status %d", o, o.Row().Status)
	}
	testsupport.True(t, !IsOutcome(""), "an outcome has no name")
}

// The status is that of the response to the client; nbr is OpenRTB's no-bid reason code, and nonBid the status of
// seatnonbid.
func TestClientsAreToldHowTheirRequestEnded(t *testing.T) {
	got := make(map[string]string)
	for o := range Outcomes {
		r := o.Row()
		key := fmt.Sprintf("%d, nbr %d, %d", r.Status, r.NBR, r.NonBid)
		got[key] += " " + o.String()
	}
	for key, want := range map[string]string{
		fmt.Sprintf("%d, nbr %d, 102", FromSSP, NoNBR): " fill",
		fmt.Sprintf("%d, nbr 1, 100", FromSSP):         " no_bid",
		fmt.Sprintf("%d, nbr 1, 102", FromSSP):         " redirect client_error server_error unreadable",
		fmt.Sprintf("200, nbr %d, 100", NoNBR):         " merged",
		"204, nbr 500, 203":                            " shaped",
		"204, nbr 501, 203":                            " filtered",
		"400, nbr 1, 100":                              " bad_request",
		"404, nbr 1, 100":                              " no_route unknown_ssp",
		"405, nbr 1, 100":                              " method_not_allowed",
		"413, nbr 1, 100":                              " too_large",
		"500, nbr 1, 100":                              " internal",
		"502, nbr 1, 102":                              " bad_response response_too_large",
		"502, nbr 1, 103":                              " connect_failed tls_failed conn_lost",
		"503, nbr 1, 100":                              " draining local_error client_gone",
		"503, nbr 1, 101":                              " cancelled",
		"503, nbr 15, 101":                             " pending_timeout",
		"503, nbr 500, 203":                            " pending_full breaker_open qps_limit ssp_backoff ssp_disabled overloaded",
		"504, nbr 15, 101":                             " deadline",
		"508, nbr 1, 100":                              " loop",
	} {
		testsupport.Equal(t, got[key], want, "%[2]s: %[1]q", key)
		delete(got, key)
	}
	testsupport.Equal(t, len(got), 0, "%d more: %v", got)
}
