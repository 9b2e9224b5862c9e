import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';

/** The server hands out what is compressed here, so that it need not compress anything itself. */
function compressed(): Plugin {
  const squeeze = (folder: string) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) squeeze(path);
      else if (/\.(js|css|html|svg)$/.test(entry.name)) {
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    }
  };
  return {
    name: 'berth-compressed',
    apply: 'build',
    // The folder itself is kept: it is always there for cargo to watch, and says what git ignores.
    buildStart: () => rmSync('dist/assets', { recursive: true, force: true }),
    closeBundle: () => squeeze('dist'),
  };
}

export default defineConfig({
  plugins: [react(), compressed()],
  build: { target: 'es2022', emptyOutDir: false, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  // `npm run dev` beside a server that runs: BERTH=http://127.0.0.1:7370.
  server: { proxy: { '/api': { target: process.env.BERTH ?? 'http://127.0.0.1:7370', ws: true } } },
});
