package files

import (
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
)

// maxNameBytes bounds a folder's name: file systems allow 255 bytes.
const maxNameBytes = 180

// manifestName is the manifest's name in a resource's folder.
const manifestName = "manifest.json"

// runIDLen is the length of a run's UUID in text.
const runIDLen = 36

// safeName writes a name so that it is one path component on every file system
// and key space: letters, digits, "_" and "-" of ASCII stay, the bytes of
// everything else become %XX. Long names are cut and end in a hash of the whole.
func safeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= maxNameBytes {
		return b.String()
	}
	cut := b.String()[:maxNameBytes-17]
	// Never cut inside an escape, which would read as another character.
	if i := strings.LastIndexByte(cut, '%'); i >= 0 && len(cut)-i < 3 {
		cut = cut[:i]
	}
	return fmt.Sprintf("%s~%016x", cut, xxh3.HashString(s))
}

// folderOf returns a resource's folder: its path parts, joined by dots. Two
// parts share the length that a name may have.
func folderOf(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = safeName(p)
	}
	name := strings.Join(parts, ".")
	if len(name) <= maxNameBytes {
		return name
	}
	whole := strings.Join(path, "\x00")
	cut := name[:maxNameBytes-17]
	if i := strings.LastIndexByte(cut, '%'); i >= 0 && len(cut)-i < 3 {
		cut = cut[:i]
	}
	return fmt.Sprintf("%s~%016x", cut, xxh3.HashString(whole))
}

// parsePath splits a resource name such as `"s.t"."a.b"` or public.orders into
// its parts; a doubled quote inside quotes is a quote.
func parsePath(name string) []string {
	var parts []string
	var cur strings.Builder
	quoted := false
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '"' && quoted && i+1 < len(name) && name[i+1] == '"':
			cur.WriteByte('"')
			i++
		case c == '"':
			quoted = !quoted
		case c == '.' && !quoted:
			parts = append(parts, cur.String())
			cur.Reset()
		default:
			cur.WriteByte(c)
		}
	}
	return append(parts, cur.String())
}

// splitDir returns the folder of a split inside a run's folder. Split ids begin
// with the resource's name, which the folder above says already.
func splitDir(resource, split string) string {
	if rest, ok := strings.CutPrefix(split, resource+"/"); ok {
		name := safeName(rest)
		if strings.HasPrefix(name, "%2E") {
			return name // a leading dot hides a folder, or means another one
		}
		return strings.ReplaceAll(name, "%2E", ".")
	}
	return "~" + safeName(split)
}

// runDir returns the folder of a run's plan generation: a reset loads beside
// what it throws away, never into it (P7).
func runDir(runID string, generation int) string {
	if generation == 0 {
		return safeName(runID)
	}
	return fmt.Sprintf("%s-g%d", safeName(runID), generation)
}

// fileName returns a data file's name in its split's folder. The digest is over
// the encoded bytes and the number of the file in the epoch, so equal names
// mean equal bytes of the same place, and no two files of an epoch share one.
func fileName(epoch, claim int64, digest xxh3.Uint128, ext string) string {
	return fmt.Sprintf("%d-%d-%016x%016x%s", epoch, claim, digest.Hi, digest.Lo, ext)
}

// runOf returns the run id of a key below a resource's folder
// ("<run>/<split>/<file>"), and whether the key has our layout.
func runOf(key string) (string, bool) {
	dir, rest, ok := strings.Cut(key, "/")
	if !ok || len(dir) < runIDLen || strings.Count(rest, "/") != 1 {
		return "", false
	}
	id := dir[:runIDLen]
	for i := range len(id) {
		c := id[i]
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || (!dash && !hex) {
			return "", false
		}
	}
	return id, dir == id || strings.HasPrefix(dir[runIDLen:], "-g")
}

// extension returns the end of data files' names.
func extension(format, compression string) string {
	if format == FormatParquet {
		return ".parquet"
	}
	switch compression {
	case CompressionGzip:
		return "." + format + ".gz"
	case CompressionZstd:
		return "." + format + ".zst"
	}
	return "." + format
}

// isData tells whether a file's name looks like data of any of our formats.
func isData(name string) bool {
	for _, ext := range []string{".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".csv.gz", ".csv.zst"} {
		if strings.HasSuffix(name, ext) {
			return true
		}
	}
	return false
}

// checkFolders refuses two resources of a run in one folder, also where the
// file system takes upper and lower case for the same.
func checkFolders(resource, folder string, others []string) error {
	for _, o := range others {
		if o == resource {
			continue
		}
		if f := folderOf(parsePath(o)); strings.EqualFold(f, folder) {
			return engine.Permanentf("give one of them another target",
				"resources %s and %s would be written into one folder, %s", resource, o, folder)
		}
	}
	return nil
}
