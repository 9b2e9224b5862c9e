import { defineConfig } from '@playwright/test';

// As root, in a container, and without a word to anybody outside.
const args = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Pages from a folder come from no address, and open sockets to this machine all the same.
  ...(process.env.BERTH_UI_DIST ? ['--disable-features=LocalNetworkAccessChecks'] : []),
];

export default defineConfig({
  testDir: 'tests',
  fullyParallel: true,
  workers: 2,
  timeout: 180_000,
  expect: { timeout: 20_000 },
  reporter: [['list']],
  use: {
    browserName: 'chromium',
    actionTimeout: 30_000,
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath: process.env.BERTH_CHROMIUM ?? '/usr/bin/chromium', args },
  },
});
