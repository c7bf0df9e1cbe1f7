package reload

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// What the shaper of an SSP knows stays with the SSP's name, also with a new pool. Other keys begin with nothing.
func TestAReloadKeepsTheShaperOfTheSameKeys(t *testing.T) {
	config := func(url, shape string) string {
		return strings.Replace(to(url), "{name: openx,", "{name: openx, qps: {limit: 100, shape: {"+shape+"}},", 1)
	}
	v := versionsOf(t, parse(t, config("http://127.0.0.1:1/", `keys: ["query:slot"]`)))
	scored := func() uint64 {
		report, _, _ := v.Current().Part("openx").SSP.ShapeReport()
		return report.Requests[shaper.Passed]
	}
	var fields header.RequestFields
	testsupport.NoError(t, fields.Scan([]byte("Host: a\r\n\r\n")))
	now := time.Now()
	ex := exchange.AcquireExchange()
	outcome, _ := v.Current().Part("openx").SSP.Do(&ssp.Request{
		Method: exchange.GET, Fields: &fields, Identity: new(header.Identity), Received: now, Deadline: now.Add(time.Minute), Budget: exchange.NewBudget(1 << 20),
	}, ex, 0)
	ex.Release()
	testsupport.MustTrue(t, outcome == exchange.ConnectFailed && scored() == 1, "%v, %d requests were scored", outcome, scored())
	for _, step := range []struct {
		config string
		scored uint64
	}{
		{config("http://127.0.0.1:1/", `keys: ["query:slot"], explore: 0.1, max_loss: 0.01`), 1},
		{config("http://127.0.0.1:2/", `keys: ["query:slot"]`), 1},
		{config("http://127.0.0.1:2/", `keys: ["query:slot", "openrtb:/imp/0/banner/w"]`), 0},
	} {
		_, err := v.Replace(parse(t, step.config))
		testsupport.NoError(t, err)
		testsupport.Equal(t, scored(), step.scored, "%[2]s: %[1]d requests were scored", step.config)
	}
}
