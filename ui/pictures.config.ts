import { defineConfig } from '@playwright/test';
import tests from './playwright.config.ts';

export default defineConfig({ ...tests, testMatch: 'pictures.ts', timeout: 900_000 });
