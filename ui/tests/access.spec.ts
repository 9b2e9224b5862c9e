// Everybody can use it: by keyboard, by a reader of screens, by day and by night, on a phone.
import { AxeBuilder } from '@axe-core/playwright';
import type { Page } from '@playwright/test';
import { type Berth, expect, test } from './berth.ts';

const PAGES = [
  '/',
  '/workloads',
  '/projects',
  '/projects/team-a',
  '/nodes',
  '/nodes/node1',
  '/nodes?view=list',
  '/analytics',
  '/activity',
  '/people',
  '/people?tab=tokens',
  '/people?tab=audit',
  '/settings',
];

const TABS = ['', '?tab=logs', '?tab=events', '?tab=metrics', '?tab=terminal', '?tab=connect'];

/** Every page, and a workload in each of its views. */
async function everything(berth: Berth) {
  const listed = JSON.parse(await berth.run('list', '-A', '-o', 'json')) as { items: { id: number }[] };
  const [running, waiting] = listed.items.map(({ id }) => `/workloads/${id}`);
  const whole = running!.replace('/workloads/', '/workload/');
  return [...PAGES, ...TABS.map(tab => running + tab), whole, ...(waiting ? [waiting] : [])];
}

async function serious(page: Page) {
  // In one piece: the page has no frames.
  const { violations } = await new AxeBuilder({ page })
    .setLegacyMode()
    .options({ resultTypes: ['violations'] })
    .analyze();
  return violations
    .filter(one => one.impact === 'serious' || one.impact === 'critical')
    .map(one => `${page.url()}: ${one.id}: ${one.nodes.map(node => node.html).join(' ')}`);
}

for (const scheme of ['light', 'dark'] as const) {
  test(`axe finds nothing serious on any page when it is ${scheme}`, async ({ berth, signedIn: page }) => {
    await berth.join('bob', 'researcher', 'project/team-a');
    await berth.run('submit', 'one', '-p', 'team-a', '-g', '1', '-i', 'berth/quickstart');
    await berth.run('submit', 'two', '-p', 'team-b', '-g', '8', '--workers', '4', '-i', 'berth/quickstart');
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    const found: string[] = [];
    for (const path of await everything(berth)) {
      await page.goto(berth.address + path);
      await expect(page.getByRole('heading').first()).toBeVisible();
      await expect(page.getByText('Live', { exact: true })).toBeVisible();
      found.push(...(await serious(page)));
    }
    await page.goto(`${berth.address}/workloads`);
    await page.getByLabel('Select one').check();
    found.push(...(await serious(page)));
    await page.goto(`${berth.address}/analytics`);
    await page.getByRole('button', { name: 'Custom range' }).click();
    found.push(...(await serious(page)));
    for (const [path, button] of [
      ['/workloads', 'Submit'],
      ['/projects', 'New project'],
      ['/people', 'New user'],
      ['/people?tab=tokens', 'New token'],
    ] as const) {
      await page.goto(berth.address + path);
      await page.getByRole('button', { name: button, exact: true }).click();
      const form = page.getByRole('dialog');
      await expect(form).toBeVisible();
      // All of it, and with something wrong.
      for (const group of await form.locator('details > summary').all()) await group.click();
      const amount = form.locator('input[inputmode=decimal]').first();
      if (await amount.isVisible()) await amount.fill('many');
      found.push(...(await serious(page)));
      await page.keyboard.press('Escape');
    }
    await page.getByRole('button', { name: 'Sign out' }).click();
    await expect(page.getByLabel('Or sign in with a token')).toBeVisible();
    found.push(...(await serious(page)));
    expect(found).toEqual([]);
  });
}

test('the keyboard goes everywhere', async ({ berth, signedIn: page }) => {
  await berth.run('submit', 'one', '-p', 'team-a', '-g', '1', '-i', 'berth/quickstart');
  // Two keys within a moment, which a busy machine may draw apart.
  await expect(async () => {
    await page.keyboard.press('g');
    await page.keyboard.press('w');
    await expect(page.getByRole('heading', { name: 'Workloads' })).toBeVisible({ timeout: 5000 });
  }).toPass();
  await page.keyboard.press('/');
  await page.keyboard.type('one');
  await expect(page).toHaveURL(/q=one/);
  const row = page.getByRole('link', { name: 'one', exact: true });
  await row.focus();
  await page.keyboard.press('Enter');
  const drawer = page.getByRole('complementary', { name: 'Workload one' });
  await expect(drawer).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(drawer).toBeHidden();
  await expect(row).toBeFocused();
});

test('a phone shows every page without scrolling sideways', async ({ berth, signedIn: page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await berth.run('submit', 'one', '-p', 'team-a', '-g', '1', '-i', 'berth/quickstart');
  for (const path of await everything(berth)) {
    await page.goto(berth.address + path);
    await expect(page.getByRole('heading').first()).toBeVisible();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    expect(wide, path).toBeLessThanOrEqual(0);
  }
});
