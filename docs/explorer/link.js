// What the page shows as a text for the fragment of its address, and back.

async function pass(bytes, stream) {
  const through = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(through).arrayBuffer());
}

export async function writeLink(shown) {
  const bytes = await pass(
    new TextEncoder().encode(JSON.stringify(shown)),
    new CompressionStream("deflate-raw"),
  );
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// Null for what is no such text.
export async function readLink(text) {
  try {
    const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
    const found = JSON.parse(
      new TextDecoder().decode(await pass(bytes, new DecompressionStream("deflate-raw"))),
    );
    return typeof found?.text === "string" ? found : null;
  } catch (error) {
    console.warn(`The address has no operator that can be read: ${error}`);
    return null;
  }
}
