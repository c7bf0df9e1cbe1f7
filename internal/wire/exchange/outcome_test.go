package exchange

import (
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
		testsupport.True(t, o.HasResponse() == (o <= ServerError), "%v has the status %d", o, o.Row().Status)
	}
	testsupport.True(t, !IsOutcome(""), "an outcome has no name")
}
