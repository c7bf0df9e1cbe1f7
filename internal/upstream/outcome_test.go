package upstream

import (
	"reflect"
	"testing"
)

func TestEachOutcomeHasAWholeRowOfItsOwn(t *testing.T) {
	names := make(map[string]bool)
	for o := range Outcomes {
		row := reflect.ValueOf(rows[o])
		for i := range row.NumField() {
			if row.Field(i).IsZero() {
				t.Errorf("outcome %d (%v) has no %s", o, o, row.Type().Field(i).Name)
			}
		}
		if names[o.String()] || !IsOutcome(o.String()) {
			t.Errorf("outcome %d: the name %q is not its own", o, o)
		}
		names[o.String()] = true
		if o.HasResponse() != (o <= ServerError) {
			t.Errorf("%v has the status %d", o, o.Row().Status)
		}
	}
	if IsOutcome("") {
		t.Error("an outcome has no name")
	}
}
