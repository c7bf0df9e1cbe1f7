package sspsim

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestTheFirstFaultInTheOrderOfTheFieldsWins(t *testing.T) {
	var order []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Faults]())[3:] { // after Refuse, BlackHole and Hang, which affect connections
		order = append(order, f.Tag.Get("json"))
	}
	if n := int(faultMalformed - faultHang); len(order) != n || len(eventKeys) != int(events) {
		t.Fatalf("%d faults of requests have a field, %d a name", len(order), n)
	}
	for i, key := range order {
		if got := (faultStall + event(i)).name(); got != key {
			t.Errorf("fault %d is %q, its field %q", i+1, got, key)
		}
	}
	f := fullBehaviour().Faults
	f.Reset, f.Drip.Chance, f.Stall, f.CutHead, f.CutBody = Every(2), Always, Chance{}, Chance{}, Chance{}
	f.Status.Chance, f.RefuseStream = Chance{}, Chance{}
	p := newScript(Behaviour{Faults: f})
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 10 {
		want := faultDrip
		if i%2 == 1 {
			want = faultReset
		}
		if got := p.draw(r, false).fault; got != want {
			t.Errorf("request %d: %s, want %s", i, got.name(), want.name())
		}
	}
}
