package control_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
)

func TestPages(t *testing.T) {
	key := func(n int) any { return n }
	whole := control.PageOf("n", control.Page{Limit: 3}, []int{1, 2, 3}, key)
	require.Equal(t, []int{1, 2, 3}, whole.Items)
	require.Empty(t, whole.Next)
	part := control.PageOf("n", control.Page{Limit: 2}, []int{1, 2, 3}, key)
	require.Equal(t, []int{1, 2}, part.Items)
	var n int
	ok, err := control.DecodeCursor("n", part.Next, &n)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 2, n)
	ok, err = control.DecodeCursor("n", "", &n)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, 50, control.Page{}.Size())
	require.Equal(t, control.MaxPage, control.Page{Limit: 1 << 30}.Size())
}

func TestForeignCursors(t *testing.T) {
	var id uuid.UUID
	for _, c := range []string{"x", "!", control.EncodeCursor("other", id), control.EncodeCursor("id", 7), control.EncodeCursor("id", id) + "A"} {
		_, err := control.DecodeCursor("id", c, &id)
		var bad *control.CursorError
		require.ErrorAs(t, err, &bad, c)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(control.EncodeCursor("id", uuid.Max))
	f.Add("aWQKMA")
	f.Fuzz(func(t *testing.T, text string) {
		var id uuid.UUID
		ok, err := control.DecodeCursor("id", text, &id)
		if err != nil || !ok {
			return
		}
		var again uuid.UUID
		_, err = control.DecodeCursor("id", control.EncodeCursor("id", id), &again)
		require.NoError(t, err)
		require.Equal(t, id, again)
	})
}
