package reload

import (
	"reflect"
	"strings"
	"testing"

	"adbuffer/internal/config"
)

// A word without a value would have the meaning of the zero value: a new mode would be single.
func TestEachWordOfTheConfigurationHasAValue(t *testing.T) {
	for _, c := range []struct {
		section any
		field   string
		values  any // a map from the words
	}{
		{config.Route{}, "Mode", modes},
		{config.Route{}, "NoAd", noAds},
		{config.Settings{}, "Identity", identityModes},
		{config.Settings{}, "NoBidBody", noBidBodies},
		{config.Retry{}, "Stale", retryStales},
	} {
		field, _ := reflect.TypeOf(c.section).FieldByName(c.field)
		values, words := reflect.ValueOf(c.values), strings.Fields(field.Tag.Get("words"))
		for _, word := range words {
			if !values.MapIndex(reflect.ValueOf(word).Convert(field.Type)).IsValid() {
				t.Errorf("%T.%s: the word %s has no value", c.section, c.field, word)
			}
		}
		if len(words) == 0 || values.Len() != len(words) {
			t.Errorf("%T.%s: %d values for the words %v", c.section, c.field, values.Len(), words)
		}
	}
}
